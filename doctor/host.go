package doctor

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
)

// hostRoute reports wrong routes on the host for the container's packets, in both directions.
func hostRoute(f *Facts, a *Attachment) (out []Finding) {
	to := a.arrives(f)
	if to == nil || len(a.Lost) > 0 || len(linkForwarding(f, a)) > 0 || has(duplicates(f, a), "address-duplicate") {
		return nil // then that is why
	}
	for _, p := range a.Paths {
		if !f.connects(to, p, a) {
			continue // the host does not forward for an internal network
		}
		if p.Err != "" && p.Back == to.Index && f.hasDefault(p.From.Is4()) {
			out = append(out, Finding{Name: "host-route-refused", Problem: fmt.Sprintf("the host has no route for packets from %s: %s", p.From, p.Err),
				Effect: "the container reaches this host only", Fix: f.refusing(p)})
		}
		if p.Back == 0 || p.Back == to.Index {
			continue
		}
		other := byIndex(f.Host, p.Back)
		if other == nil || other.Name == a.HostEnd {
			continue
		}
		out = append(out, Finding{Name: "host-route-wrong", Problem: fmt.Sprintf("the host's route to %s goes through %s, but the container is behind %s", p.From, other.Name, to.Name),
			Effect: "replies go elsewhere, and with rp_filter 1 the host drops the container's packets", Fix: f.straying(a, p, other)})
	}
	return out
}

func (f *Facts) hasDefault(v4 bool) bool {
	return slices.ContainsFunc(f.Host.Routes, func(r kernel.RouteInfo) bool {
		return r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == v4 && r.Type == unicastType
	})
}

// refusing returns the command against a rule or route that rejects the container's packets.
func (f *Facts) refusing(p Path) string {
	for _, r := range f.Host.Rules {
		if r.From.IsValid() && r.From.Contains(p.From) {
			return "ip" + six(p.From) + " rule del from " + r.From.String() + " priority " + strconv.Itoa(r.Priority)
		}
	}
	return "ip" + six(p.From) + " rule show (one of them sends it nowhere)"
}

// connects reports whether the host should reach an address of a container through a link: it has a route there, or is a
// gateway of the container.
func (f *Facts) connects(to *kernel.LinkInfo, p Path, a *Attachment) bool {
	return slices.ContainsFunc(a.Gateways, f.isLocal) || slices.ContainsFunc(f.Host.Routes, func(r kernel.RouteInfo) bool {
		return r.Index == to.Index && r.Dst.Contains(p.From) && r.Dst.Bits() > 0
	})
}

// straying returns the command against the route that leads to another link. The host keeps its default route: there, the
// container's own is missing.
func (f *Facts) straying(a *Attachment, p Path, other *kernel.LinkInfo) string {
	best := netip.Prefix{}
	for _, r := range f.Host.Routes {
		if r.Index == other.Index && r.Dst.Contains(p.From) && r.Table == 254 && (!best.IsValid() || r.Dst.Bits() > best.Bits()) {
			best = r.Dst
		}
	}
	if !best.IsValid() {
		return "ip" + six(p.From) + " rule show (one of them leads to another table)"
	}
	if best.Bits() == 0 {
		return a.repair()
	}
	for _, b := range f.Attachments {
		if l := b.arrives(f); l != nil && l.Index == other.Index && b.Network != a.Network {
			return separate(a, b) // the other network needs the route
		}
	}
	return "ip" + six(p.From) + " route del " + best.String() + " dev " + other.Name
}

func six(a netip.Addr) string {
	if a.Is6() {
		return " -6"
	}
	return ""
}

// linkForwarding reports that one link does not forward.
func linkForwarding(f *Facts, a *Attachment) (out []Finding) {
	for _, l := range []*kernel.LinkInfo{a.arrives(f), a.upstream(f, true)} {
		if l == nil || len(a.Gateways) == 0 {
			continue
		}
		if f.Sysctls["net/ipv4/ip_forward"] == "1" && f.Sysctls["net/ipv4/conf/"+l.Name+"/forwarding"] == "0" {
			out = append(out, Finding{Name: "forwarding-off-on-link", Problem: "the host does not forward packets that arrive on " + l.Name + " (net.ipv4.conf." + l.Name + ".forwarding is 0)",
				Effect: "containers reach this host only", Fix: "sysctl -w net/ipv4/conf/" + l.Name + "/forwarding=1"})
		}
	}
	return out
}

// hostDefault reports a missing default route of the host if it is the gateway of containers. Another router does not need
// the host's routes.
func hostDefault(f *Facts) (out []Finding) {
	for _, v4 := range []bool{true} { // a host without outside IPv6 is usual
		wants := slices.ContainsFunc(f.Attachments, func(a *Attachment) bool {
			return slices.ContainsFunc(kernel.Of[*kernel.Route](a.Objects), func(r *kernel.Route) bool {
				return r.In == kernel.Container && r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == v4 && f.isLocal(r.Via)
			})
		})
		if wants && !f.hasDefault(v4) {
			out = append(out, Finding{Name: "host-no-default-route", Problem: "the host has no default route",
				Effect: "containers reach the host's own networks only", Fix: "ip route add default via GATEWAY (the host's own router)"})
		}
	}
	return out
}

// isLocal reports whether an address is one of the host's.
func (f *Facts) isLocal(a netip.Addr) bool {
	return slices.ContainsFunc(f.Host.Addrs, func(h kernel.AddrInfo) bool { return h.Prefix.Addr() == a })
}

const nearlyFull = 90 // percent

func conntrack(f *Facts) []Finding {
	count, err1 := strconv.Atoi(f.Sysctls["net/netfilter/nf_conntrack_count"])
	limit, err2 := strconv.Atoi(f.Sysctls["net/netfilter/nf_conntrack_max"])
	if err1 != nil || err2 != nil || limit == 0 || count*100 < limit*nearlyFull {
		return nil
	}
	return []Finding{{Name: "conntrack-full", Problem: fmt.Sprintf("connection tracking has %d of %d entries", count, limit),
		Effect: "when it is full, the host drops the first packet of new connections of every container", Fix: fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", 2*limit)}}
}

func ranges(f *Facts) (out []Finding) {
	for _, r := range f.Ranges {
		if r.Size == 0 || r.Held*100 < r.Size*nearlyFull {
			continue
		}
		x := Finding{Name: "range-nearly-full", Problem: fmt.Sprintf("network %s holds %d of the %d addresses of %s", r.Network, r.Held, r.Size, r.Range),
			Effect: "when none is left, no container can be added to the network", Fix: "configure a larger range (ipam) in the network's file"}
		if r.Gone > 0 {
			x.Problem += fmt.Sprintf(", %d of them for containers that are gone", r.Gone)
			x.Fix = "fairlead gc --all"
		}
		out = append(out, x)
	}
	return out
}

func plugins(f *Facts) (out []Finding) {
	for _, p := range f.Plugins {
		x := Finding{Name: "plugin-missing", Problem: fmt.Sprintf("network %s needs the plugin %s, which is not in %s", p.Network, p.Type, strings.Join(p.Dirs, ", ")),
			Effect: "no container can be added to the network or removed from it", Fix: "install the plugin " + p.Type + " there"}
		if p.Ours != "" {
			x.Fix = "ln -s " + p.Ours + " " + p.Dirs[0] + "/" + p.Type
		}
		out = append(out, x)
	}
	return out
}

// onItsOwn is the effect on a host that receives nothing from the cluster.
const onItsOwn = "running containers continue; new ones get addresses from this host's own blocks only, and changes on other hosts are not received"

func agent(f *Facts) (out []Finding) {
	if f.Agent.Away != "" {
		out = append(out, Finding{Name: "agent-away", Problem: "the agent, which network " + strings.Join(f.Agent.Needed, ", ") + " needs, does not answer: " + f.Agent.Away,
			Effect: onItsOwn, Fix: "systemctl restart fairlead-agent (in Kubernetes: kubectl -n fairlead-system get pods -o wide)"})
	}
	if f.Agent.StoreError != "" {
		out = append(out, Finding{Name: "agent-store-away", Problem: "the agent, which network " + strings.Join(f.Agent.Needed, ", ") + " needs, cannot reach the cluster's store: " + f.Agent.StoreError,
			Effect: onItsOwn, Fix: "start the store again, or correct the store's settings in /etc/fairlead/agent.yaml; the agent continues on its own"})
	}
	for _, what := range f.Agent.Failures {
		out = append(out, Finding{Name: "agent-addresses", Problem: "the agent " + what,
			Effect: "new containers may get no address, or an address of a container here may belong to another one", Fix: "fairlead ipam check, and fairlead ipam show"})
	}
	if list := f.Agent.NotReached; len(list) > 0 {
		const shown = 5
		text := strings.Join(list[:min(len(list), shown)], "; ")
		if more := len(list) - shown; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		out = append(out, Finding{Name: "agent-nodes-unreachable", Problem: "the agent cannot reach these nodes: " + text,
			Effect: "containers do not reach containers on these nodes", Fix: "fairlead agent status lists all of them: change what it names"})
	}
	for _, why := range f.Agent.Reasons {
		out = append(out, Finding{Name: "agent-not-ready", Problem: "the agent is not ready: " + why,
			Effect: "containers may not reach containers on other hosts", Fix: "read its log: journalctl -u fairlead-agent (in Kubernetes: kubectl -n fairlead-system logs POD -c agent)"})
	}
	return out
}

// held reports addresses of the attachment that host-local's directory does not list, or lists for another owner.
func held(_ *Facts, a *Attachment) (out []Finding) {
	for _, h := range a.Held {
		switch {
		case h.Free:
			out = append(out, Finding{Name: "address-not-held", Problem: fmt.Sprintf("host-local does not list %s as used (%s is missing)", h.Addr, h.File),
				Effect: "the next container may get the same address",
				Fix: fmt.Sprintf(`sh -c 'mkdir -p %s; printf "%s\r\n%s" > %s'`,
					filepath.Dir(h.File), h.Expected.ContainerID, h.Expected.IfName, h.File)})
		case h.Owner != h.Expected && h.Owner != (ipam.Owner{ContainerID: h.Expected.ContainerID}):
			out = append(out, Finding{Name: "address-held-by-another", Problem: fmt.Sprintf("host-local lists %s for %q (%s)", h.Addr, h.Owner.String(), h.File),
				Effect: "two containers may have one address, and removing the other one releases it", Fix: fmt.Sprintf(`sh -c 'printf "%s\r\n%s" > %s'`, h.Expected.ContainerID, h.Expected.IfName, h.File)})
		}
	}
	return out
}

// dns reports name servers that the container certainly cannot reach.
func dns(f *Facts, a *Attachment) (out []Finding) {
	if a.Inside == nil {
		return nil
	}
	instead := "a name server that containers reach"
	if len(f.Upstream) > 0 {
		instead = f.Upstream[0].String()
	}
	fix := func() string {
		if !filepath.IsAbs(a.Resolv) {
			return fmt.Sprintf("set dns.nameservers of network %s to %s, and attach the container again", a.Network, instead)
		}
		return fmt.Sprintf("sh -c 'echo nameserver %s > %s'", instead, a.Resolv)
	}
	for _, ns := range a.Nameservers {
		switch {
		case ns.IsLoopback() && !a.LocalDNS:
			out = append(out, Finding{Name: "dns-loopback", Problem: fmt.Sprintf("%s lists %s, and nothing in the container listens there", a.Resolv, ns),
				Effect: "names are not resolved; connections by address work", Fix: fix()})
		case !ns.IsLoopback() && !a.routed(ns):
			out = append(out, Finding{Name: "dns-unreachable", Problem: fmt.Sprintf("%s lists %s, and the container has no route to it", a.Resolv, ns),
				Effect: "names are not resolved; connections by address may work", Fix: fix()})
		}
	}
	return out
}

// routed reports whether the container has a route to an address. No prefix contains an address with a zone.
func (a *Attachment) routed(to netip.Addr) bool {
	to = to.WithZone("")
	return slices.ContainsFunc(a.Inside.Routes, func(r kernel.RouteInfo) bool { return r.Type == unicastType && r.Dst.Contains(to) })
}

// probed reports gateways that did not answer a ping.
func probed(_ *Facts, a *Attachment) (out []Finding) {
	for _, gw := range a.Silent {
		out = append(out, Finding{Name: "gateway-silent", Problem: fmt.Sprintf("the gateway %s does not answer a ping from the container", gw),
			Effect: "the container reaches its subnet at most, unless the gateway never answers pings", Fix: a.repair()})
	}
	return out
}
