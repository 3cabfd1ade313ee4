package dhcpd

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// netConfig is the configuration that a network assigns to an interface.
type netConfig struct {
	IPs    []cni.IP
	Routes []cni.Route
	DNS    cni.DNS
	OnLink []netip.Prefix // on-link prefixes
}

func (g *netConfig) add(o netConfig) {
	g.IPs = append(g.IPs, o.IPs...)
	g.Routes = append(g.Routes, o.Routes...)
	g.OnLink = append(g.OnLink, o.OnLink...)
	g.DNS.Nameservers = append(g.DNS.Nameservers, o.DNS.Nameservers...)
	g.DNS.Search = append(g.DNS.Search, o.DNS.Search...)
	if g.DNS.Domain == "" {
		g.DNS.Domain = o.DNS.Domain
	}
}

// result converts it to an attachment's result. A DHCPv6 address comes without a prefix length and a gateway: router
// advertisements provide both.
func (g netConfig) result() *cni.Result {
	r := &cni.Result{IPs: slices.Clone(g.IPs), Routes: slices.Clone(g.Routes), DNS: g.DNS}
	for i := range r.IPs {
		ip := &r.IPs[i]
		if !ip.Address.IsSingleIP() {
			continue
		}
		for _, p := range g.OnLink {
			if p.Contains(ip.Address.Addr()) {
				ip.Address = netip.PrefixFrom(ip.Address.Addr(), p.Bits())
			}
		}
		for _, rt := range g.Routes {
			if rt.Dst.Bits() == 0 && ip.Address.Addr().Is6() && rt.Dst.Addr().Is6() {
				ip.Gateway = rt.GW
			}
		}
	}
	return r
}

// without returns the addresses and routes of g that are not in o.
func (g netConfig) without(o netConfig) netConfig {
	var out netConfig
	for _, ip := range g.IPs {
		if !slices.Contains(o.addresses(), ip.Address.Addr()) {
			out.IPs = append(out.IPs, ip)
		}
	}
	for _, rt := range g.Routes {
		if !slices.ContainsFunc(o.Routes, func(r cni.Route) bool { return r.Dst == rt.Dst && r.GW == rt.GW }) {
			out.Routes = append(out.Routes, rt)
		}
	}
	return out
}

func (g netConfig) addresses() (out []netip.Addr) {
	for _, ip := range g.IPs {
		out = append(out, ip.Address.Addr())
	}
	return out
}

func (g netConfig) empty() bool { return len(g.IPs) == 0 && len(g.Routes) == 0 }

// describe returns a description for messages.
func (g netConfig) describe() (out []string) {
	for _, ip := range g.IPs {
		out = append(out, ip.Address.Addr().String())
	}
	for _, rt := range g.Routes {
		out = append(out, "route to "+rt.Dst.String())
	}
	return out
}

// objects returns the addresses and routes for an interface. Prefix lengths come from the complete result.
func (g netConfig) objects(ifname string, whole *cni.Result) (list kernel.Objects) {
	for _, ip := range whole.IPs {
		if slices.Contains(g.addresses(), ip.Address.Addr()) {
			list = append(list, &kernel.Addr{In: kernel.Container, Link: ifname, Prefix: ip.Address})
		}
	}
	for _, rt := range g.Routes {
		list = append(list, &kernel.Route{In: kernel.Container, Link: ifname, Dst: rt.Dst, Via: rt.GW, Metric: rt.Priority, Scope: rt.Scope, AllowOthers: true})
	}
	return list
}
