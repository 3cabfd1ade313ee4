package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
)

// The states of an attachment.
const (
	stateOK     = "ok"
	stateGone   = "namespace gone"
	stateAdding = "adding"
	stateCut    = "cut off" // its ADD ended without an end
)

// listed is an attachment as list prints it.
type listed struct {
	Network   string        `json:"network"`
	Container string        `json:"container"`
	IfName    string        `json:"ifname"`
	Netns     string        `json:"netns"`
	Addresses []string      `json:"addresses"`
	Ports     []attach.Port `json:"hostPorts"`
	Created   time.Time     `json:"created"`
	Age       int           `json:"ageSeconds"`
	State     string        `json:"state"`
}

func (a *app) listCommand() *cobra.Command {
	var network, container string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "every attachment on this host", GroupID: "look",
		Long: "List prints the attachments that plugins of Fairlead made on this host. Its state is\n" +
			`"ok", "namespace gone" (gc removes it), "adding", or "cut off" (an add that was` + "\n" +
			"killed: del or gc removes what it left).",
		Example: "  fairlead list\n  fairlead list --network my-network\n  fairlead list --json | jq -r '.[].addresses[]'",
		Args:    want(0, 0),
		RunE: func(*cobra.Command, []string) error {
			records, err := attach.Open(a.getenv(attach.RootVariable)).List(network)
			if err != nil {
				return fmt.Errorf("%w\nThe records of attachments are root's. Type: sudo fairlead list", err)
			}
			return a.printList(selected(records, network, container))
		},
	}
	a.selection(c, &network, &container)
	return c
}

func selected(records []*attach.Record, network, container string) []listed {
	out := []listed{} // not null in JSON
	for _, r := range records {
		if chosen(r, network, container) {
			out = append(out, look(r))
		}
	}
	return out
}

func chosen(r *attach.Record, network, container string) bool {
	return (network == "" || r.Network == network) &&
		(container == "" || strings.HasPrefix(r.ContainerID, container) || strings.HasSuffix(r.Netns, "/"+container) || r.Netns == container)
}

// look reads a record.
func look(r *attach.Record) listed {
	l := listed{
		Network: r.Network, Container: r.ContainerID, IfName: r.IfName, Netns: r.Netns,
		Addresses: []string{}, Ports: []attach.Port{},
		Created: r.Created, Age: int(time.Since(r.Created).Seconds()), State: state(r),
	}
	var last *cni.Result
	for _, p := range r.Parts {
		l.Ports = append(l.Ports, p.Ports...)
		if r, err := p.Result.Get(); err == nil && r != nil {
			last = r
		}
	}
	if last != nil {
		for _, ip := range last.IPs {
			l.Addresses = append(l.Addresses, ip.Address.String())
		}
	}
	return l
}

func state(r *attach.Record) string {
	for _, p := range r.Parts {
		switch {
		case p.Adding():
			return stateAdding
		case !p.Done:
			return stateCut
		}
	}
	if !r.Living() {
		return stateGone
	}
	return stateOK
}

func (a *app) printList(list []listed) error {
	if a.json {
		return a.printJSON(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.stdout, "No attachments. To make one: fairlead add NETWORK NETNS")
		return err
	}
	t := table{{"NETWORK", "CONTAINER", "INTERFACE", "ADDRESSES", "HOST PORTS", "AGE", "STATE"}}
	for _, l := range list {
		t = append(t, []string{l.Network, l.name(), l.IfName, join(l.Addresses), ports(l.Ports), age(l.Age), l.State})
	}
	return t.print(a.stdout)
}

// name is what a person calls the container: those that were added by hand
// have an ID that says less than their namespace.
func (l listed) name() string {
	if strings.HasPrefix(l.Container, "cnitool-") && l.Container == containerID(l.Netns) {
		return strings.TrimPrefix(l.Netns, netnsDir+"/")
	}
	return l.Container
}

func ports(list []attach.Port) string {
	var words []string
	for _, p := range list {
		from := strconv.Itoa(p.HostPort)
		if ip, err := netip.ParseAddr(p.HostIP); err == nil && !ip.IsUnspecified() {
			from = net.JoinHostPort(p.HostIP, from)
		}
		words = append(words, fmt.Sprintf("%s->%d/%s", from, p.ContainerPort, p.Protocol))
	}
	return join(words)
}

func age(seconds int) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 2*3600:
		return fmt.Sprintf("%dm", seconds/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%dh", seconds/3600)
	}
	return fmt.Sprintf("%dd", seconds/86400)
}
