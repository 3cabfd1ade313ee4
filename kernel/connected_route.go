package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// connectedRoute is the route to an address's subnet. The kernel adds it with the address or when the link comes up,
// and does not restore it.
type connectedRoute struct{ Route }

func connectedRouteOf(a *Addr) *connectedRoute {
	r := Route{In: a.In, Dst: a.Prefix.Masked(), Link: a.Link, Proto: unix.RTPROT_KERNEL}
	if a.Prefix.Addr().Is4() {
		r.Src = a.Prefix.Addr()
	} else {
		r.Metric = kernelMetric
	}
	return &connectedRoute{Route: r}
}

const kernelMetric = 256 // metric of the kernel's own IPv6 routes

func (c *connectedRoute) kind() string           { return "connected" }
func (c *connectedRoute) String() string         { return c.Route.String() + " proto kernel" }
func (c *connectedRoute) ensure(e *Engine) error { return c.restore(e) }
func (c *connectedRoute) remove(*Engine) error   { return nil }

// diff ignores a link that is down or lacks the address. Other objects report that. Of several addresses in the subnet,
// the first one is the source of the route.
func (c *connectedRoute) diff(e *Engine) ([]string, error) {
	l, err := e.Link(c.In, c.Link)
	if err != nil || !l.Up {
		return nil, err
	}
	table, err := c.table(e)
	if err != nil {
		return nil, err
	}
	have, err := c.sameFamily(e, table, c.Proto)
	if err != nil {
		return nil, err
	}
	for _, h := range have {
		if h.Dst == c.Dst && h.Index == l.Index && !h.Via.IsValid() {
			return nil, nil
		}
	}
	return []string{"is missing"}, nil
}

func (c *connectedRoute) without(later Object) Object {
	r, ok := c.Route.without(later).(*Route)
	if !ok {
		return nil
	}
	if r == &c.Route {
		return c
	}
	return &connectedRoute{*r}
}

// sameFamily lists the routes of the route's family in a table. A host may have many routes, so there it lists only those
// of a protocol; 0 means all.
func (r *Route) sameFamily(e *Engine, table int, protocol byte) ([]RouteInfo, error) {
	if r.In == Container {
		protocol = 0 // one list for all comparisons
	}
	family := netlink.AddrFamily(r.Dst.Addr())
	return readOnce(e, listKey{"routes", r.In, family, table, protocol}, func() ([]RouteInfo, error) {
		return e.RoutesByProtocol(r.In, family, table, protocol)
	})
}
