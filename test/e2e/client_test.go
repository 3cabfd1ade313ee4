package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
)

// pod is what a client is asked to run: a container whose probe serves, with a
// network of its own. In CRI it is a pod of one container.
type pod struct {
	name     string
	networks []string // none: the client's default, or the first
	ports    []port
	ip, mac  string // asked of the client
	rate     int    // bits a second each way, asked of the client
}

// chosen are the pod's networks, for clients that always want one.
func (p pod) chosen() []string {
	if len(p.networks) == 0 {
		return []string{network}
	}
	return p.networks
}

// port is a port of the host that leads to one of the pod.
type port struct {
	host, pod int
	protocol  string
}

// container is a pod that runs.
type container struct {
	pod
	id      string // what the client knows it by
	sandbox string // in CRI, the pod's
}

// ability is what not every client has a notion of.
type ability string

const (
	fixedIP       ability = "a fixed address"
	fixedMAC      ability = "a fixed hardware address"
	ownRate       ability = "a rate asked for a pod"
	chooseNetwork ability = "networks chosen for a pod"
	callsStatus   ability = "STATUS"
	callsGC       ability = "GC"
	daemon        ability = "a daemon"
)

// client is a container runtime and what commands it. Everything is done in
// one host; methods but start may be called many at a time.
type client interface {
	name() string
	version() (string, error)
	// spec is the newest version of the specification that it takes.
	spec() string
	// binds are the machine's directories that its host has to see.
	binds() map[string]string
	// lacks says in words why it cannot be asked for something; "": it can.
	lacks(a ability) string
	// start makes it ready in a host.
	start(t *testing.T, h *host)
	// again starts it after kill.
	again(t *testing.T)
	// kill ends it as a crash would, and what is under way.
	kill() error
	// run starts a pod. After an error there may be a part of it.
	run(p pod) (*container, error)
	exec(c *container, argv ...string) (string, error)
	// restart ends the container's process and starts it again, by the client's
	// own notion of that.
	restart(c *container) error
	remove(c *container) error
	// removeAll removes whatever it still knows of.
	removeAll() error
}

// servePort is where the probe in every container listens.
const servePort = 8080

func serveWords() []string { return []string{"/probe", "serve", fmt.Sprintf(":%d", servePort)} }

// link is a container's link as the probe sees it.
type link struct {
	Name, MAC string
	MTU       int
	Addresses []string
}

func links(c client, in *container) ([]link, error) {
	out, err := c.exec(in, "/probe", "links")
	if err != nil {
		return nil, err
	}
	var l []link
	return l, json.Unmarshal([]byte(out), &l)
}
