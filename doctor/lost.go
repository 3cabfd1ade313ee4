package doctor

import (
	"strings"

	"github.com/fairlead/fairlead/kernel"
)

// state: what is not there cannot be looked at.
func state(_ *Facts, a *Attachment) []Finding {
	switch a.State {
	case "namespace gone":
		return []Finding{{Name: "namespace-gone", Problem: "its namespace " + a.Netns + " is gone, or another one by now",
			Follows: "nobody uses its addresses and host ports, and nobody else gets them", Mend: "fairlead gc --all"}}
	case "cut off":
		return []Finding{{Name: "add-cut-off", Problem: "its ADD was killed before it ended",
			Follows: "half of it stands: the container has no network that works", Mend: "fairlead gc --all"}}
	}
	return nil
}

// words are what is said of a kind of object that a repair would restore.
type words struct{ name, follows string }

// losses are the words by kind and side.
func losses() map[string]words {
	const shaped = "its traffic is not limited as configured, or not carried at all"
	return map[string]words{
		"host bridge":         {"bridge-lost", "no container of the bridge reaches anything"},
		"host veth":           {"interface-changed", "gc and other commands do not know the link as ours"},
		"host enslaved":       {"port-off-bridge", "the container reaches nothing at all"},
		"host port":           {"port-changed", "it does not reach itself by its host port, or ports that should be isolated reach each other"},
		"host vlan":           {"port-changed", "its frames are in another VLAN than they should be, or in none"},
		"host up":             {"host-end-down", "the container reaches nothing at all"},
		"container up":        {"interface-down", "the container reaches nothing at all"},
		"host addr":           {"bridge-gateway-missing", "containers have no gateway: they reach their neighbours, and nothing beyond"},
		"container addr":      {"address-missing", "nobody reaches the container at this address, and it cannot send from it"},
		"container route":     {"route-missing", "the container does not reach what lies there"},
		"host route":          {"host-route-missing", "the host does not reach the container"},
		"container connected": {"subnet-route-missing", "the container does not reach its neighbours, nor its gateway"},
		"host connected":      {"subnet-route-missing", "the host does not reach its containers"},
		"container rule":      {"routing-rule-missing", "answers leave by another interface than requests came by"},
		"container noroute":   {"route-came-back", "packets leave by another interface than configured"},
		"container neigh":     {"neighbour-missing", "the container does not reach a neighbour that it was told of"},
		"host neigh":          {"neighbour-missing", "the host does not reach a neighbour that it was told of"},
		"container tuned":     {"settings-changed", "the interface has other settings than configured"},
		"host sysctl":         {"sysctl-changed", "the host does not behave as the network was made for"},
		"container sysctl":    {"sysctl-changed", "the container does not behave as configured"},
		"host nft":            {"rules-missing", "masquerading, host ports or protections do not work, for any container of the network"},
		"host element":        {"rule-element-missing", "rules do not know the container"},
		"host accept":         {"accept-missing", "another software's firewall drops what the container sends and gets"},
		"host zone":           {"accept-missing", "firewalld drops what the container sends and gets"},
		"host command":        {"rule-missing", "a rule that only a command can make does not apply"},
		"host flows":          {"udp-flow-stale", "senders that go on without a pause reach a former container, or the host, by UDP"},
		"host qdisc":          {"shaping-missing", shaped},
		"container qdisc":     {"shaping-missing", shaped},
		"host filter":         {"shaping-missing", shaped},
		"container filter":    {"shaping-missing", shaped},
		"host ifb":            {"shaping-missing", shaped},
		"container vrf":       {"router-missing", "the container's virtual router does not route"},
		"container member":    {"router-missing", "the interface is not in its virtual router"},
		"host ovs-port":       {"port-off-bridge", "the container reaches nothing at all"},
	}
}

// lost: what an attachment was made of, and has no more.
func lost(f *Facts, a *Attachment) (out []Finding) {
	strayed := has(port(f, a), "port-on-other-bridge")
	for _, d := range a.Lost {
		switch kernel.Kind(d.Object) {
		case "announced":
			continue // see port
		case "port", "vlan":
			if strayed {
				continue // of a port that is elsewhere
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
		w = words{"object-changed", "the container's network is not as it was made"}
	}
	f := Finding{Name: w.name, Problem: d.String(), Follows: w.follows, Mend: a.repair()}
	what := strings.Join(d.What, ", ")
	if kernel.Irreplaceable(d.Object) && !strings.HasPrefix(what, "alias ") {
		return a.interfaceGone(d), true
	}
	switch o := d.Object.(type) { // words for the user about some kinds of objects
	case *kernel.Bridge:
		if what == "is down" {
			f.Name = "bridge-down"
		}
	case *kernel.Up:
		if o.Link != a.HostEnd && o.In == kernel.Host {
			f.Name, f.Follows = "shaping-missing", losses()["host ifb"].follows
		}
	case *kernel.Addr:
		if o.In == kernel.Container && a.elsewise(o) {
			f.Name, f.Follows = "address-wrong-prefix", "the container takes neighbours for far away, or what is far away for neighbours"
		}
	case *kernel.Route:
		return a.routeLost(f, o, what), true
	case *kernel.Sysctl:
		if strings.HasSuffix(o.Key, "/ip_forward") || strings.HasSuffix(o.Key, "/forwarding") {
			f.Name, f.Follows = "forwarding-off", "no container of this host reaches anything beyond it"
		}
		f.Mend = o.String()
		if o.In == kernel.Container {
			f.Mend = a.in(f.Mend)
		}
	case *kernel.Element:
		elementLost(&f, o, what)
	}
	return f, a.worthSaying(d)
}

// worthSaying: what only follows from something else is not said twice.
func (a *Attachment) worthSaying(d kernel.Difference) bool {
	for _, x := range a.Lost {
		if kernel.PartOfTable(d.Object, x.Object) {
			return false // the table itself is reported
		}
	}
	return true
}

func (a *Attachment) interfaceGone(d kernel.Difference) Finding {
	return Finding{Name: "interface-missing", Problem: d.String(),
		Follows: "the container has no network, and nothing but a new ADD gives it one",
		Mend:    "restart the container, so that its runtime does DEL and ADD (by hand: fairlead del " + a.Network + " " + a.Netns + " && fairlead add " + a.Network + " " + a.Netns + ")"}
}

// elsewise tells whether the interface has the address, with another prefix.
func (a *Attachment) elsewise(o *kernel.Addr) bool {
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
		f.Name, f.Follows = "default-route-missing", "the container reaches its own subnet, and nothing beyond"
	}
	if strings.HasPrefix(what, "is missing; there is one") {
		f.Name = strings.Replace(f.Name, "missing", "replaced", 1)
		f.Follows = "packets take another way than configured"
		del := "ip route del " + o.Dst.String()
		if o.Dst.Addr().Is6() {
			del = "ip -6 route del " + o.Dst.String()
		}
		if o.In == kernel.Container {
			del = a.in(del)
		}
		f.Mend = del + " && " + a.repair()
	}
	return f
}

func elementLost(f *Finding, o *kernel.Element, what string) {
	switch {
	case strings.HasPrefix(o.Set, "masq-"):
		f.Name, f.Follows = "masquerade-missing", "what it sends beyond the host leaves with its own address, and no answer comes back"
	case strings.HasPrefix(o.Set, "hostports"):
		f.Name, f.Follows = "host-port-missing", "its host port does not lead to it"
	}
	if strings.HasPrefix(what, "belongs to") {
		f.Name, f.Mend = "rule-element-of-another", "fairlead gc --all"
	}
}
