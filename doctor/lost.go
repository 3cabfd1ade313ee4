package doctor

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// state reports attachments that cannot be examined.
func state(_ *Facts, a *Attachment) []Finding {
	switch a.State {
	case "namespace gone":
		return []Finding{{Name: "namespace-gone", Problem: "its namespace " + a.Netns + " is gone, or another namespace has its path",
			Effect: "its addresses and host ports are unused and cannot be used again", Fix: "fairlead gc --all"}}
	case "interrupted":
		return []Finding{{Name: "add-interrupted", Problem: "its ADD was killed before it ended",
			Effect: "it is incomplete: the container has no working network", Fix: "fairlead gc --all"}}
	}
	if a.HostGone != "" {
		return []Finding{{Name: "network-namespace-gone", Problem: "the namespace of its isolated network, " + a.HostGone + ", is gone",
			Effect: "the container has no network, unless an agent that runs since then mounts the namespace again within a minute", Fix: a.attachAgain()}}
	}
	return nil
}

// loss describes a missing object of one kind: the finding's name and its effect.
type loss struct{ name, effect string }

// losses returns the descriptions by side and kind of object.
func losses() map[string]loss {
	const shaped = "its traffic is not limited as configured, or not forwarded at all"
	return map[string]loss{
		"host bridge":         {"bridge-lost", "no container on the bridge reaches anything"},
		"host veth":           {"interface-changed", "gc and other commands do not recognize the link"},
		"host enslaved":       {"port-off-bridge", "the container reaches nothing at all"},
		"host port":           {"port-changed", "it does not reach itself through its host port, or isolated ports reach each other"},
		"host vlan":           {"port-changed", "its frames are in a wrong VLAN, or in none"},
		"host up":             {"host-end-down", "the container reaches nothing at all"},
		"container up":        {"interface-down", "the container reaches nothing at all"},
		"host addr":           {"bridge-gateway-missing", "containers have no gateway: they reach their neighbours only"},
		"container addr":      {"address-missing", "the container cannot receive or send with this address"},
		"container route":     {"route-missing", "the container does not reach that destination"},
		"host route":          {"host-route-missing", "the host does not reach the container"},
		"container connected": {"subnet-route-missing", "the container reaches neither its neighbours nor its gateway"},
		"host connected":      {"subnet-route-missing", "the host does not reach its containers"},
		"container rule":      {"routing-rule-missing", "replies leave through another interface than requests arrive on"},
		"container noroute":   {"route-came-back", "packets leave through another interface than configured"},
		"container neigh":     {"neighbour-missing", "the container does not reach a configured neighbour"},
		"host neigh":          {"neighbour-missing", "the host does not reach a configured neighbour"},
		"container tuned":     {"settings-changed", "the interface has other settings than configured"},
		"host sysctl":         {"sysctl-changed", "the host does not behave as the network needs"},
		"container sysctl":    {"sysctl-changed", "the container does not behave as configured"},
		"host nft":            {"rules-missing", "masquerade, host ports or protections do not work for any container on the network"},
		"host element":        {"rule-element-missing", "rules do not match the container"},
		"host accept":         {"accept-missing", "another firewall drops the container's packets in both directions"},
		"host zone":           {"accept-missing", "firewalld drops the container's packets in both directions"},
		"host command":        {"rule-missing", "a rule that iptables or nft syntax created is missing"},
		"host flows":          {"udp-flow-stale", "UDP senders with a fixed port reach a container that is gone, or the host"},
		"host qdisc":          {"shaping-missing", shaped},
		"container qdisc":     {"shaping-missing", shaped},
		"host filter":         {"shaping-missing", shaped},
		"container filter":    {"shaping-missing", shaped},
		"host ifb":            {"shaping-missing", shaped},
		"container vrf":       {"router-missing", "the container's VRF does not route"},
		"container member":    {"router-missing", "the interface is not in its VRF"},
		"host ovs-port":       {"port-off-bridge", "the container reaches nothing at all"},
	}
}

// lost reports the attachment's objects that are missing or changed.
func lost(f *Facts, a *Attachment) (out []Finding) {
	strayed := has(port(f, a), "port-on-other-bridge")
	for _, d := range a.Lost {
		switch kernel.Kind(d.Object) {
		case "announced":
			continue // port reports it
		case "port", "vlan":
			if strayed {
				continue // the port is on another bridge
			}
		}
		if f, ok := a.lost(d); ok {
			out = append(out, f)
		}
	}
	return out
}

func (a *Attachment) lost(d kernel.Difference) (Finding, bool) {
	kind := kernel.Kind(d.Object)
	w, ok := losses()[d.Object.Side().String()+" "+kind]
	if !ok {
		w = loss{"object-changed", "the container's network differs from its desired state"}
	}
	f := Finding{Name: w.name, Problem: d.String(), Effect: w.effect, Fix: a.repair()}
	what := strings.Join(d.What, ", ")
	if d.Gone {
		return a.interfaceGone(d), true
	}
	switch o := d.Object.(type) { // kinds of objects that need other words or another fix
	case *kernel.Bridge:
		if what == "is down" {
			f.Name = "bridge-down"
		}
	case *kernel.Up:
		if o.Link != a.HostEnd && o.In == kernel.Host {
			f.Name, f.Effect = "shaping-missing", losses()["host ifb"].effect
		}
	case *kernel.Addr:
		if o.In == kernel.Container && a.hasOtherPrefix(o) {
			f.Name, f.Effect = "address-wrong-prefix", "the container sends packets for neighbours to its gateway, or looks for distant hosts on its own link"
		}
	case *kernel.Route:
		return a.routeLost(f, o, what), true
	case *kernel.Sysctl:
		if strings.HasSuffix(o.Key, "/ip_forward") || strings.HasSuffix(o.Key, "/forwarding") {
			f.Name, f.Effect = "forwarding-off", "no container of this host reaches anything beyond it"
		}
		f.Fix = o.String()
		if o.In == kernel.Container {
			f.Fix = a.in(f.Fix)
		}
	case *kernel.Element:
		elementLost(&f, o, what)
	}
	return f, a.isReported(d)
}

// isReported reports whether a difference is more than the consequence of another one.
func (a *Attachment) isReported(d kernel.Difference) bool {
	for _, x := range a.Lost {
		if kernel.PartOfTable(d.Object, x.Object) {
			return false // the table itself is reported
		}
	}
	return true
}

// interfaceGone reports a lost interface. Only the container's runtime can attach it again, except what "fairlead add"
// attached, whose ID begins with "cnitool-".
func (a *Attachment) interfaceGone(d kernel.Difference) Finding {
	return Finding{Name: "interface-missing", Problem: d.String(), Effect: "the container has no network until it is attached again", Fix: a.attachAgain()}
}

func (a *Attachment) attachAgain() string {
	if strings.HasPrefix(a.Container, "cnitool-") {
		args := fmt.Sprintf("%s %s -i %s", a.Network, a.Netns, a.IfName)
		return "fairlead del " + args + " && fairlead add " + args
	}
	return "restart the container, so that its runtime runs DEL and ADD"
}

// hasOtherPrefix reports whether the interface has the address with another prefix length.
func (a *Attachment) hasOtherPrefix(o *kernel.Addr) bool {
	if a.Inside == nil {
		return false
	}
	for _, h := range a.Inside.Addrs {
		if h.Prefix.Addr() == o.Prefix.Addr() {
			return true
		}
	}
	return false
}

func (a *Attachment) routeLost(f Finding, o *kernel.Route, what string) Finding {
	if o.In == kernel.Container && o.Dst.Bits() == 0 {
		f.Name, f.Effect = "default-route-missing", "the container reaches its own subnet, and nothing beyond"
	}
	if strings.HasPrefix(what, "is missing; there is one") {
		f.Name = strings.Replace(f.Name, "missing", "replaced", 1)
		f.Effect = "packets take another way than configured"
		del := "ip route del " + o.Dst.String()
		if o.Dst.Addr().Is6() {
			del = "ip -6 route del " + o.Dst.String()
		}
		if o.In == kernel.Container {
			del = a.in(del)
		}
		f.Fix = del + " && " + a.repair()
	}
	return f
}

func elementLost(f *Finding, o *kernel.Element, what string) {
	switch {
	case strings.HasPrefix(o.Set, "masq-"):
		f.Name, f.Effect = "masquerade-missing", "packets that leave the host have the container's address, so no replies return"
	case strings.HasPrefix(o.Set, "hostports"):
		f.Name, f.Effect = "host-port-missing", "its host port does not reach it"
	}
	if strings.HasPrefix(what, "belongs to") {
		f.Name, f.Fix = "rule-element-of-another", "fairlead gc --all"
	}
}
