package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

func (r *Route) diff(e *Engine) ([]string, error) {
	h, other, err := r.find(e)
	if err != nil {
		return nil, err
	}
	if h != nil {
		return r.differs(*h), nil
	}
	if other != nil {
		return []string{fmt.Sprintf("is missing; there is one via %s on link %d", other.Via, other.Index)}, nil
	}
	return []string{"is missing"}, nil
}

// find returns the route to the destination in the table through the same link and gateways, or nil, and another route
// to the destination. It does not compare the protocol: an identical route that somebody else added does as well.
func (r *Route) find(e *Engine) (same, other *RouteInfo, err error) {
	i, err := r.LinkIndex(e)
	if err != nil {
		return nil, nil, err
	}
	table, err := r.table(e)
	if err != nil {
		return nil, nil, err
	}
	have, err := r.sameFamily(e, table, 0)
	if err != nil {
		return nil, nil, err
	}
	for n, h := range have {
		switch {
		case h.Dst != r.Dst.Masked() || h.Type != r.KernelType():
		case (i == 0 || h.Index == i) && r.sameGateways(h) && r.hasMetric(h):
			if len(r.differs(h)) == 0 {
				return &have[n], nil, nil
			}
			same = cmp.Or(same, &have[n])
		default:
			other = &have[n]
		}
	}
	return same, other, nil
}

// hasMetric compares the metric. The kernel's default is 0 for IPv4, and 1024 for IPv6, or 256 for its own routes.
func (r *Route) hasMetric(h RouteInfo) bool {
	return h.Metric == r.Metric || r.Metric == 0 && r.Dst.Addr().Is6()
}

// sameGateways compares the gateways. The kernel merges IPv6 routes to one destination through one link into a multipath
// route, of which the route is then one hop.
func (r *Route) sameGateways(h RouteInfo) bool {
	if len(r.Hops) == 0 && r.Dst.Addr().Is6() && slices.ContainsFunc(h.Hops, func(hop Hop) bool { return hop.Via == r.Via }) {
		return true
	}
	return h.Via == r.Via && sameHops(h.Hops, r.Hops)
}

func sameHops(a, b []Hop) bool {
	order := func(x, y Hop) int { return x.Via.Compare(y.Via) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order))
}

// table returns the route's table: the VRF's if a later plugin put the link into a VRF. If the link has left the VRF, its
// routes have left it, too, and VRFMember reports that.
func (r *Route) table(e *Engine) (int, error) {
	if r.Table != 0 || r.vrf == "" {
		return r.RoutingTable(), nil
	}
	l, err := e.Link(r.In, r.Link)
	if err != nil {
		return 0, err
	}
	router, err := e.Link(r.In, r.vrf)
	if errors.Is(err, os.ErrNotExist) || err == nil && l.Master != router.Index {
		return r.RoutingTable(), nil
	}
	if err != nil {
		return 0, err
	}
	return router.VRFTable(), nil
}

// without returns nil if a later plugin moves the route to another table of its own. If it puts the link into a VRF, the
// route is in the VRF's table.
func (r *Route) without(later Object) Object {
	switch l := later.(type) {
	case *AbsentRoute:
		if sameRoute(&l.Route, r) {
			return nil
		}
	case *VRFMember:
		if r.In == Container && l.Link == r.Link {
			c := *r
			c.vrf = l.VRF
			return &c
		}
	}
	return r
}

func sameRoute(a, b *Route) bool {
	return a.In == b.In && a.Link == b.Link && a.Dst.Masked() == b.Dst.Masked() && a.Via == b.Via && a.RoutingTable() == b.RoutingTable()
}

// restore replaces a route whose attributes differ. It adds the route next to somebody else's route to the destination:
// IPv4 uses the newest one.
func (r *Route) restore(e *Engine) error {
	table, err := r.table(e)
	if err != nil {
		return err
	}
	in := *r
	in.Table = table
	h, _, err := r.find(e)
	if err != nil {
		return err
	}
	if h != nil && len(r.differs(*h)) > 0 {
		wrong := in
		wrong.Metric, wrong.Src, wrong.Scope, wrong.MTU, wrong.AdvMSS, wrong.OnLink = h.Metric, h.Src, nil, 0, 0, h.OnLink
		if err := wrong.removeAny(e); err != nil && !netlink.IsAbsent(err) {
			return err
		}
	}
	in.AllowOthers = true
	return in.ensure(e)
}

// removeAny removes the route, whoever added it, of whatever scope.
func (r *Route) removeAny(e *Engine) error {
	i, err := r.LinkIndex(e)
	if err != nil {
		return err
	}
	body := r.Message(i)
	body[5], body[6] = unix.RTPROT_UNSPEC, unix.RT_SCOPE_NOWHERE // wildcards in a deletion
	_, err = e.Request(r.In, netlink.Request{Type: unix.RTM_DELROUTE, Flags: 0, Body: body})
	return err
}

// The kernel stores no larger values: ip_metrics_convert in net/ipv4/metrics.c.
const (
	MaxMTU    = 65535 - 15 // bytes
	maxAdvMSS = 65535 - 40
)

// differs compares the attributes of a route to the same place. IPv6 has no scopes. An administrator may have added an
// MTU (doctor suggests that).
func (r *Route) differs(h RouteInfo) (d []string) {
	if r.MTU != 0 {
		d = unequal("mtu", h.MTU, min(r.MTU, MaxMTU))
	}
	if r.AdvMSS != 0 {
		d = append(d, unequal("advmss", h.AdvMSS, min(r.AdvMSS, maxAdvMSS))...)
	}
	d = append(d, unequal("onlink", onOff(h.OnLink), onOff(r.OnLink))...)
	if r.Src.IsValid() {
		d = append(d, unequal("src", h.Src, r.Src)...)
	}
	if r.Dst.Addr().Is4() {
		d = append(d, unequal("scope", h.Scope, r.scope())...)
	}
	return d
}
