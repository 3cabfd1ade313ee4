package chain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/plugin"
)

// SBR returns the plugin for source-based routing: packets leave through the interface that has their source address.
func SBR() plugin.Plugin {
	return plugin.Plugin{
		Name: "sbr", About: "source-based routing: a routing table for each address of an interface", Chained: true, Exclusive: true,
		New: func() plugin.Config { return &sbr{} },
	}
}

type sbr struct {
	plugin.Conf
	Table          *int         `json:"table"`
	Gateways       []netip.Addr `json:"gateways"`
	AddSourceHints bool         `json:"addSourceHints"`
}

const (
	firstTable = 100 // the search for a free table starts here
	maxTable   = 1<<32 - 1
)

func (c *sbr) Validate(*plugin.Attachment) error {
	if t := c.Table; t != nil && (*t < 1 || *t > maxTable || *t == kernel.LocalTable) {
		return cni.Invalid(c.Raw, "table", fmt.Sprintf("want a table from 1 to %d, except %d, the kernel's table of local addresses", maxTable, kernel.LocalTable))
	}
	families := map[bool]bool{}
	for i, g := range c.Gateways {
		key := fmt.Sprintf("gateways[%d]", i)
		g = g.Unmap()
		switch {
		case !g.IsValid() || g.IsUnspecified() || g.Zone() != "":
			return cni.Invalid(c.Raw, key, "want an address without a zone, like 10.1.0.1 or fe80::1")
		case families[g.Is4()]:
			return cni.Invalid(c.Raw, key, "want at most one gateway for each family")
		}
		c.Gateways[i], families[g.Is4()] = g, true
	}
	return nil
}

func (c *sbr) Addressed(a *plugin.Attachment, r *cni.Result) (kernel.Objects, error) {
	ips := ownIPs(a, r)
	if len(ips) == 0 {
		return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "sbr: prevResult has no address on %s", a.IfName)
	}
	var list kernel.Objects
	if c.Table != nil { // somebody else fills the table
		for _, ip := range ips {
			list = append(list, fromRule(ip.Address.Addr(), *c.Table))
		}
		return list, nil
	}
	tables, err := tablesFor(a, ips)
	if err != nil {
		return nil, err
	}
	routes, err := routesOf(a)
	if err != nil {
		return nil, err
	}
	taken := make([]bool, len(routes))
	for i, ip := range ips {
		list = append(list, fromRule(ip.Address.Addr(), tables[i]))
		var own []kernel.RouteInfo
		for n, rt := range routes {
			if needs(ips, i, rt) {
				own, taken[n] = append(own, rt), !c.staysInMain(rt)
			}
		}
		list = append(list, c.table(a, ip, tables[i], own)...)
	}
	return append(list, absentRoutes(a, routes, taken)...), nil
}

// staysInMain reports whether the main table keeps a route: with source hints, a route without a gateway. That to the
// address's subnet has the address as its source, so packets to the subnet have it even if their sender chose none.
func (c *sbr) staysInMain(r kernel.RouteInfo) bool {
	return c.AddSourceHints && !r.HasGateway()
}

// absentRoutes removes routes from the main table that other tables have now, except that to IPv6 link-local addresses:
// every interface has one. Routes through a gateway are removed first, and so restored last.
func absentRoutes(a *plugin.Attachment, routes []kernel.RouteInfo, taken []bool) (list kernel.Objects) {
	for _, byGateway := range []bool{true, false} {
		for n, rt := range routes {
			if local6 := rt.Dst.Addr().Is6() && rt.Dst.Addr().IsLinkLocalUnicast(); taken[n] && rt.HasGateway() == byGateway && !local6 {
				list = append(list, &kernel.AbsentRoute{Route: *rt.On(kernel.Container, a.IfName)})
			}
		}
	}
	return list
}

// Find returns our rules whose tables have routes through this interface.
func (c *sbr) Find(a *plugin.Attachment) (list kernel.Objects, err error) {
	routes, err := routesOf(a)
	if err != nil {
		return nil, err
	}
	for _, family := range []byte{kernel.IPv4, kernel.IPv6} {
		rules, err := a.Facts.Rules(kernel.Container, family)
		if err != nil {
			return nil, err
		}
		for _, rule := range rules {
			ours := rule.Protocol == kernel.Protocol && rule.From.IsSingleIP()
			if ours && slices.ContainsFunc(routes, func(rt kernel.RouteInfo) bool { return rt.Table == rule.Table }) {
				list = append(list, fromRule(rule.From.Addr(), rule.Table))
			}
		}
	}
	return list, nil
}

// ownIPs returns the addresses of the attachment's interface. Some third-party plugins name no sandbox in their result.
func ownIPs(a *plugin.Attachment, r *cni.Result) (out []cni.IP) {
	for _, ip := range r.IPs {
		if i := r.InterfaceOf(ip); i == nil || i.Name == a.IfName {
			out = append(out, ip)
		}
	}
	return out
}

func fromRule(ip netip.Addr, table int) *kernel.Rule {
	return &kernel.Rule{In: kernel.Container, From: netip.PrefixFrom(ip, ip.BitLen()), Table: table}
}

// tablesFor returns a table for each address: the table of its existing rule, or the next one without rules and routes.
func tablesFor(a *plugin.Attachment, ips []cni.IP) ([]int, error) {
	used, named := map[int]bool{}, map[netip.Prefix]int{}
	for _, family := range []byte{kernel.IPv4, kernel.IPv6} {
		rules, err := a.Facts.Rules(kernel.Container, family)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			used[r.Table] = true
			if r.Protocol == kernel.Protocol {
				named[r.From] = r.Table
			}
		}
		routes, err := a.Facts.Routes(kernel.Container, family, 0)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			used[r.Table] = true
		}
	}
	out := make([]int, len(ips))
	next := firstTable
	for i, ip := range ips {
		ip := ip.Address.Addr()
		if out[i] = named[netip.PrefixFrom(ip, ip.BitLen())]; out[i] != 0 {
			continue
		}
		for used[next] {
			next++
		}
		out[i], used[next] = next, true
	}
	return out, nil
}

// routesOf returns the routes through the attachment's interface.
func routesOf(a *plugin.Attachment) ([]kernel.RouteInfo, error) {
	l, err := a.Facts.Link(kernel.Container, a.IfName)
	if err != nil {
		return nil, err
	}
	return plugin.RoutesThrough(a.Facts, kernel.Container, l)
}

// needs reports whether packets from an address need a route of the main table: a route in the address's subnet or
// through a gateway in it, or a route that belongs to no address, which all of its family need.
func needs(ips []cni.IP, i int, r kernel.RouteInfo) bool {
	subnet, by := ips[i].Address.Masked(), r.Via
	if len(r.Hops) > 0 {
		by = r.Hops[0].Via
	}
	if !by.IsValid() {
		by = r.Dst.Addr()
	}
	own := r.Src == ips[i].Address.Addr() || subnet.Contains(by)
	other := slices.ContainsFunc(ips, func(o cni.IP) bool { return r.Src == o.Address.Addr() || o.Address.Masked().Contains(by) })
	return r.Table == kernel.MainTable && r.Dst.Addr().Is4() == subnet.Addr().Is4() && (own || !other)
}

// table returns the contents of an address's table: the routes, and a default route through its gateway.
func (c *sbr) table(a *plugin.Attachment, ip cni.IP, table int, routes []kernel.RouteInfo) (list kernel.Objects) {
	gw, configured := c.gateway(ip)
	hasDefault := false
	slices.SortStableFunc(routes, func(x, y kernel.RouteInfo) int { // the routes to gateways come first
		return b2i(x.HasGateway()) - b2i(y.HasGateway())
	})
	for _, rt := range routes {
		if rt.Dst.Bits() == 0 {
			if configured {
				continue
			}
			hasDefault = true
		}
		o := rt.On(kernel.Container, a.IfName)
		o.Table, o.Proto = table, 0
		list = append(list, o)
	}
	if hasDefault || !gw.IsValid() {
		return list
	}
	return append(list, &kernel.Route{In: kernel.Container, Link: a.IfName, Dst: netip.PrefixFrom(zero(gw), 0), Via: gw, Table: table})
}

// gateway returns the configured gateway of the address's family, or else the address's own.
func (c *sbr) gateway(ip cni.IP) (gw netip.Addr, configured bool) {
	for _, g := range c.Gateways {
		if g.Is4() == ip.Address.Addr().Is4() {
			return g, true
		}
	}
	return ip.Gateway, false
}

func zero(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
