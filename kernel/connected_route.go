package kernel

import (
	"encoding/binary"

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
	if c.In == Host && c.isFound(e, table, l.Index) {
		return nil, nil
	}
	have, err := c.sameFamily(e, table, c.Proto)
	if err != nil {
		return nil, err
	}
	for _, h := range have {
		if c.matches(h, l.Index) {
			return nil, nil
		}
	}
	return []string{"is missing"}, nil
}

// isFound asks the kernel for the route of one address of the subnet (RTM_F_FIB_MATCH, kernel 4.13). That takes the same
// time in a table with a million routes. A false result proves nothing: a longer prefix or a routing rule may have
// matched.
func (c *connectedRoute) isFound(e *Engine, table, link int) bool {
	to := c.Dst.Addr().Next().Next() // the first one is usually the host's own
	if to == c.Src {
		to = to.Next()
	}
	if !c.Dst.Contains(to) {
		return false
	}
	m, err := e.RouteTo(c.In, to, func(b *netlink.Buffer) {
		binary.NativeEndian.PutUint32((*b)[8:], unix.RTM_F_FIB_MATCH)
		b.Uint32(unix.RTA_OIF, uint32(link))
	})
	if err != nil {
		return false
	}
	h := ParseRoute(m)
	return c.matches(h, link) && h.Table == table && h.Protocol == c.Proto
}

// matches reports whether a route is the one to the subnet through a link.
func (c *connectedRoute) matches(h RouteInfo, link int) bool {
	return h.Dst == c.Dst && h.Index == link && !h.Via.IsValid() && h.Type == unix.RTN_UNICAST
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
