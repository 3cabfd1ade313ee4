package link

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// hostNetwork holds the addresses, routes and rules of a device on the host. With useInterfaceNetwork, the container
// gets them.
type hostNetwork struct {
	addrs  []kernel.AddrInfo
	routes []kernel.RouteInfo
	rules  []kernel.RuleInfo
}

// networkOf reads the network of a device on the host. It leaves out what the container gets by itself: routes that the
// kernel adds with addresses, and what routers advertise. Addresses of DHCPv6 are left out, too. An IPv4 address of DHCP
// is not, because the routes need it; nothing in the container renews it.
func networkOf(a *plugin.Attachment, l *kernel.LinkInfo) (n hostNetwork, err error) {
	addrs, err := a.Facts.Addrs(kernel.Host, l)
	if err != nil {
		return n, err
	}
	for _, i := range addrs {
		if i.Scope == kernel.ScopeUniverse && !i.Duplicate && (i.Prefix.Addr().Is4() || i.Permanent) {
			n.addrs = append(n.addrs, i)
		}
	}
	routes, err := plugin.RoutesThrough(a.Facts, kernel.Host, l)
	if err != nil {
		return n, err
	}
	for _, r := range routes {
		byKernel := r.Protocol == kernel.ProtocolKernel || r.Protocol == kernel.ProtocolRA
		local6 := r.Dst.Addr().Is6() && r.Dst.Addr().IsLinkLocalUnicast()
		if !byKernel && !local6 {
			n.routes = append(n.routes, r)
		}
	}
	for _, family := range []byte{kernel.IPv4, kernel.IPv6} {
		rules, err := a.Facts.Rules(kernel.Host, family)
		if err != nil {
			return n, err
		}
		inside, err := a.Facts.Rules(kernel.Container, family) // another device may have brought the same rule
		if err != nil {
			return n, err
		}
		for _, r := range rules {
			same := func(x kernel.RuleInfo) bool { x.Protocol = r.Protocol; return x == r }
			if n.needs(r) && !slices.ContainsFunc(inside, same) {
				n.rules = append(n.rules, r)
			}
		}
	}
	return n, nil
}

// needs reports whether a rule selects a table of the device's routes by one of its addresses.
func (n *hostNetwork) needs(r kernel.RuleInfo) bool {
	return !r.Other && r.From.IsValid() &&
		slices.ContainsFunc(n.addrs, func(a kernel.AddrInfo) bool { return r.From.Contains(a.Prefix.Addr()) }) &&
		slices.ContainsFunc(n.routes, func(x kernel.RouteInfo) bool { return x.Table == r.Table })
}

// keepIn saves the addresses and routes in a device's object, which restores them on the host. It omits those of a DHCP
// client.
func (n *hostNetwork) keepIn(m *kernel.HostDevice) {
	m.Network = true
	for _, a := range n.addrs {
		if a.Permanent {
			m.PreviousAddrs = append(m.PreviousAddrs, a.Prefix)
		}
	}
	for _, r := range n.ordered() {
		if r.Protocol != kernel.ProtocolDHCP {
			m.PreviousRoutes = append(m.PreviousRoutes, *r.On(kernel.Host, m.Device))
		}
	}
}

// addTo adds the addresses and routes to a result.
func (n *hostNetwork) addTo(r *cni.Result) {
	for _, a := range n.addrs {
		r.IPs = append(r.IPs, cni.IP{Address: a.Prefix, Interface: new(int)})
	}
	for _, rt := range n.routes {
		out := cni.Route{Dst: rt.Dst, GW: rt.Via, Priority: rt.Metric, MTU: rt.MTU, AdvMSS: rt.AdvMSS, Table: &rt.Table}
		if len(rt.Hops) > 0 { // a result's route has one gateway
			out.GW = rt.Hops[0].Via
		}
		if scope := int(rt.Scope); scope != kernel.ScopeUniverse {
			out.Scope = &scope
		}
		r.Routes = append(r.Routes, out)
	}
}

// objects returns the routes and rules for the container's interface. Routes to gateways come first.
func (n *hostNetwork) objects(ifName string) (list kernel.Objects) {
	for _, rt := range n.ordered() {
		o := rt.On(kernel.Container, ifName)
		o.AllowOthers = true
		list = append(list, o)
	}
	for _, rule := range n.rules {
		list = append(list, &kernel.Rule{
			In: kernel.Container, From: rule.From, To: rule.To, Table: rule.Table, Priority: rule.Priority,
			Proto: cmp.Or(rule.Protocol, kernel.ProtocolBoot), // not Fairlead's: sbr would use its table
		})
	}
	return list
}

// ordered returns the routes, those without a gateway first: the kernel needs them for gateways.
func (n *hostNetwork) ordered() []kernel.RouteInfo {
	var direct, through []kernel.RouteInfo
	for _, r := range n.routes {
		if r.HasGateway() {
			through = append(through, r)
		} else {
			direct = append(direct, r)
		}
	}
	return append(direct, through...)
}
