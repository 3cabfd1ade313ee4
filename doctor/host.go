package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
)

// hostRoute: where the host sends what the container sends, and what comes back.
func hostRoute(f *Facts, a *Attachment) (out []Finding) {
	to := a.arrives(f)
	if to == nil || len(a.Lost) > 0 || len(linkForwarding(f, a)) > 0 || has(duplicates(f, a), "address-duplicate") {
		return nil // then that is why
	}
	for _, p := range a.Paths {
		if p.Err != "" && p.Back == to.Index && f.hasDefault(p.From.Is4()) {
			out = append(out, Finding{Name: "host-route-refused", Problem: fmt.Sprintf("the host has no way for what %s sends to others: %s", p.From, p.Err),
				Follows: "the container reaches this host, and nothing beyond", Mend: f.refusing(p)})
		}
		if p.Back == 0 || p.Back == to.Index {
			continue
		}
		other := byIndex(f.Host, p.Back)
		if other == nil || other.Name == a.HostEnd {
			continue
		}
		out = append(out, Finding{Name: "host-route-wrong", Problem: fmt.Sprintf("the host's route to %s leaves by %s, the container is behind %s", p.From, other.Name, to.Name),
			Follows: "answers go astray, and with rp_filter 1 the host drops what the container sends", Mend: f.straying(p, other)})
	}
	return out
}

func (f *Facts) hasDefault(v4 bool) bool {
	return slices.ContainsFunc(f.Host.Routes, func(r kernel.RouteInfo) bool {
		return r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == v4 && r.Type == unicastType
	})
}

// refusing is the command against a rule that keeps the container's packets.
func (f *Facts) refusing(p Path) string {
	for _, r := range f.Host.Rules {
		if r.From.IsValid() && r.From.Contains(p.From) {
			return "ip" + six(p.From) + " rule del from " + r.From.String() + " priority " + strconv.Itoa(r.Priority)
		}
	}
	return "ip" + six(p.From) + " rule show (one of them sends it nowhere)"
}

func (f *Facts) straying(p Path, other *kernel.LinkInfo) string {
	best := netip.Prefix{}
	for _, r := range f.Host.Routes {
		if r.Index == other.Index && r.Dst.Contains(p.From) && r.Table == 254 && (!best.IsValid() || r.Dst.Bits() > best.Bits()) {
			best = r.Dst
		}
	}
	if !best.IsValid() {
		return "ip" + six(p.From) + " rule show (one of them leads to another table)"
	}
	return "ip" + six(p.From) + " route del " + best.String() + " dev " + other.Name
}

func six(a netip.Addr) string {
	if a.Is6() {
		return " -6"
	}
	return ""
}

// linkForwarding: a link may be kept from forwarding by itself.
func linkForwarding(f *Facts, a *Attachment) (out []Finding) {
	for _, l := range []*kernel.LinkInfo{a.arrives(f), a.upstream(f, true)} {
		if l == nil || len(a.Gateways) == 0 {
			continue
		}
		if f.Sysctls["net/ipv4/ip_forward"] == "1" && f.Sysctls["net/ipv4/conf/"+l.Name+"/forwarding"] == "0" {
			out = append(out, Finding{Name: "forwarding-off-on-link", Problem: "the host does not forward what comes in by " + l.Name + " (net.ipv4.conf." + l.Name + ".forwarding is 0)",
				Follows: "containers reach this host, and nothing beyond", Mend: "sysctl -w net/ipv4/conf/" + l.Name + "/forwarding=1"})
		}
	}
	return out
}

// hostDefault: containers that are to reach everything, on a host that does not.
func hostDefault(f *Facts) (out []Finding) {
	for _, v4 := range []bool{true} { // a host without IPv6 to the outside is usual
		wants := slices.ContainsFunc(f.Attachments, func(a *Attachment) bool {
			return slices.ContainsFunc(kernel.Of[*kernel.Route](a.Objects), func(r *kernel.Route) bool {
				return r.In == kernel.Container && r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == v4
			})
		})
		if wants && !f.hasDefault(v4) {
			out = append(out, Finding{Name: "host-no-default-route", Problem: "the host has no default route",
				Follows: "containers reach what the host reaches: nothing beyond its own networks", Mend: "ip route add default via GATEWAY (the host's own router)"})
		}
	}
	return out
}

const nearlyFull = 90 // per cent

func conntrack(f *Facts) []Finding {
	count, err1 := strconv.Atoi(f.Sysctls["net/netfilter/nf_conntrack_count"])
	limit, err2 := strconv.Atoi(f.Sysctls["net/netfilter/nf_conntrack_max"])
	if err1 != nil || err2 != nil || limit == 0 || count*100 < limit*nearlyFull {
		return nil
	}
	return []Finding{{Name: "conntrack-full", Problem: fmt.Sprintf("connection tracking has %d of %d entries", count, limit),
		Follows: "when it is full the host drops the first packet of new connections, of every container", Mend: fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", 2*limit)}}
}

func ranges(f *Facts) (out []Finding) {
	for _, r := range f.Ranges {
		if r.Size == 0 || r.Held*100 < r.Size*nearlyFull {
			continue
		}
		x := Finding{Name: "range-nearly-full", Problem: fmt.Sprintf("network %s holds %d of the %d addresses of %s", r.Network, r.Held, r.Size, r.Range),
			Follows: "when none is left no container can be added to the network", Mend: "a larger range in the network's configuration (ipam)"}
		if r.Gone > 0 {
			x.Problem += fmt.Sprintf(", %d of them for containers that are gone", r.Gone)
			x.Mend = "fairlead gc --all"
		}
		out = append(out, x)
	}
	return out
}

func plugins(f *Facts) (out []Finding) {
	for _, p := range f.Plugins {
		x := Finding{Name: "plugin-missing", Problem: fmt.Sprintf("network %s needs the plugin %s, which is not in %s", p.Network, p.Type, strings.Join(p.Dirs, ", ")),
			Follows: "no container can be added to the network, nor removed from it", Mend: "install the plugin " + p.Type + " there"}
		if p.Ours != "" {
			x.Mend = "ln -s " + p.Ours + " " + p.Dirs[0] + "/" + p.Type
		}
		out = append(out, x)
	}
	return out
}

// onItsOwn is what follows when a host hears nothing of the cluster.
const onItsOwn = "what runs goes on; new containers get addresses of this host's own blocks only, and other hosts' changes are not heard of"

func agent(f *Facts) (out []Finding) {
	if f.Agent.Away != "" {
		out = append(out, Finding{Name: "agent-away", Problem: "the agent, which network " + strings.Join(f.Agent.Needed, ", ") + " needs, does not answer: " + f.Agent.Away,
			Follows: onItsOwn, Mend: "systemctl start fairlead-agent"})
	}
	if f.Agent.Store != "" {
		out = append(out, Finding{Name: "agent-store-away", Problem: "the agent, which network " + strings.Join(f.Agent.Needed, ", ") + " needs, cannot reach the cluster's store: " + f.Agent.Store,
			Follows: onItsOwn, Mend: "bring the store back, or mend how /etc/fairlead/agent.yaml leads to it: the agent goes on by itself"})
	}
	for _, what := range f.Agent.Cannot {
		out = append(out, Finding{Name: "agent-addresses", Problem: "the agent " + what,
			Follows: "new containers may get no address, or one that here has a container may be another's", Mend: "fairlead ipam check, and fairlead ipam show"})
	}
	for _, why := range f.Agent.Why {
		out = append(out, Finding{Name: "agent-not-ready", Problem: "the agent is not ready: " + why,
			Follows: "containers may not reach those of other hosts", Mend: "what its log says: journalctl -u fairlead-agent"})
	}
	return out
}

func otherBoot(f *Facts) (out []Finding) {
	for _, file := range f.OtherBoot {
		out = append(out, Finding{Name: "record-of-another-boot", Problem: file + " was written before the last start of the machine",
			Follows: "it counts as absent; FAIRLEAD_RUN should be on a tmpfs, which is empty after a start", Mend: "rm -f " + file})
	}
	return out
}

// held: who holds the attachment's addresses where host-local keeps them.
func held(_ *Facts, a *Attachment) (out []Finding) {
	for _, h := range a.Held {
		switch {
		case h.Free:
			out = append(out, Finding{Name: "address-not-held", Problem: fmt.Sprintf("nobody holds %s (%s is missing)", h.Addr, h.File),
				Follows: "the next container may get the same address", Mend: fmt.Sprintf(`sh -c 'printf "%s\r\n%s" > %s'`, h.Mine.ContainerID, h.Mine.IfName, h.File)})
		case h.Owner != h.Mine && h.Owner != (ipam.Owner{ContainerID: h.Mine.ContainerID}):
			out = append(out, Finding{Name: "address-held-by-another", Problem: fmt.Sprintf("%s is held by %q (%s)", h.Addr, h.Owner.String(), h.File),
				Follows: "two containers may have one address, and removing the other frees it", Mend: fmt.Sprintf(`sh -c 'printf "%s\r\n%s" > %s'`, h.Mine.ContainerID, h.Mine.IfName, h.File)})
		}
	}
	return out
}

// dns: whether the container's name servers can be reached at all.
func dns(f *Facts, a *Attachment) (out []Finding) {
	if a.Inside == nil {
		return nil
	}
	instead := "a name server that containers reach"
	if len(f.Upstream) > 0 {
		instead = f.Upstream[0].String()
	}
	for _, ns := range a.Nameservers {
		switch {
		case ns.IsLoopback() && !a.LocalDNS:
			out = append(out, Finding{Name: "dns-loopback", Problem: fmt.Sprintf("%s names %s, where nobody in the container listens", a.Resolv, ns),
				Follows: "no name is found: connections by name fail, by address they work", Mend: fmt.Sprintf("sh -c 'echo nameserver %s > %s'", instead, a.Resolv)})
		case !ns.IsLoopback() && !a.routed(ns):
			out = append(out, Finding{Name: "dns-unreachable", Problem: fmt.Sprintf("%s names %s, to which the container has no route", a.Resolv, ns),
				Follows: "no name is found: connections by name fail, by address they may work", Mend: fmt.Sprintf("sh -c 'echo nameserver %s > %s'", instead, a.Resolv)})
		}
	}
	return out
}

func (a *Attachment) routed(to netip.Addr) bool {
	return slices.ContainsFunc(a.Inside.Routes, func(r kernel.RouteInfo) bool { return r.Type == unicastType && r.Dst.Contains(to) })
}

// probed: gateways that did not answer.
func probed(_ *Facts, a *Attachment) (out []Finding) {
	for _, gw := range a.Silent {
		out = append(out, Finding{Name: "gateway-silent", Problem: fmt.Sprintf("the gateway %s does not answer a ping from the container", gw),
			Follows: "the container reaches its subnet at most, unless the gateway answers no pings at all", Mend: a.repair()})
	}
	return out
}
