package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
)

// pod describes what a client starts: one container with its own network, in which the probe serves.
type pod struct {
	name     string
	networks []string // if empty, the client's default network, or the first
	ports    []port
	ip, mac  string // requested from the client
	rate     int    // bits per second in each direction, requested from the client
}

// networkNames returns the pod's networks, for clients that always need one.
func (p pod) networkNames() []string {
	if len(p.networks) == 0 {
		return []string{network}
	}
	return p.networks
}

// port maps a host port to a port of the pod.
type port struct {
	host, pod int
	protocol  string
}

// container is a running pod.
type container struct {
	pod
	id      string // the client's ID of the container
	sandbox string // with CRI, the ID of the pod's sandbox
}

// feature is something that not every client supports.
type feature string

const (
	fixedIP       feature = "a fixed address"
	fixedMAC      feature = "a fixed hardware address"
	hostPorts     feature = "host ports by a CNI plugin"
	moreNetworks  feature = "several networks for a pod"
	podBandwidth  feature = "a bandwidth limit per pod"
	chooseNetwork feature = "networks chosen for a pod"
	callsStatus   feature = "STATUS"
	callsGC       feature = "GC"
)

// client is a container runtime, or a command that controls one, on one host. All methods except start are safe for
// concurrent use.
type client interface {
	name() string
	version() (string, error)
	// spec is the newest CNI version that the client supports.
	spec() string
	// binds maps directories of the machine to their paths in the client's host.
	binds() map[string]string
	// setPrograms replaces the programs, mainly the plugins.
	setPrograms(p programs)
	// unsupported returns why the client lacks a feature, or "".
	unsupported(a feature) string
	// start prepares the client on a host.
	start(t *testing.T, h *host)
	// relaunch starts the client after kill.
	relaunch(t *testing.T)
	// kill ends the client and its running operations, as a crash would.
	kill() error
	// run starts a pod. After an error, part of the pod may exist.
	run(p pod) (*container, error)
	exec(c *container, argv ...string) (string, error)
	// restart ends the container's process and starts it again, in the client's own way.
	restart(c *container) error
	remove(c *container) error
	// removeAll removes every pod that the client still knows.
	removeAll() error
}

// servePort is the port of the probe's server in every container.
const servePort = 8080

func serveCommand() []string { return []string{"/probe", "serve", fmt.Sprintf(":%d", servePort)} }

// link is a network interface of a container, as the probe reports it.
type link struct {
	Name, MAC string
	MTU       int
	Addresses []string
}

// links returns the container's interfaces. It retries on empty output, because nerdctl sometimes loses the output of a
// short command.
func links(c client, ctr *container) (l []link, err error) {
	for out := ""; out == "" && err == nil; {
		if out, err = c.exec(ctr, "/probe", "links"); out != "" {
			return l, json.Unmarshal([]byte(out), &l)
		}
	}
	return nil, err
}
