package kernel

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// bridgePort is a host link's membership in its bridge. Creating the pair sets it; a repair restores it on its own. A
// link that an administrator gave another master stays there.
type bridgePort struct {
	base
	Link, Master string
}

func (s *bridgePort) kind() string         { return "enslaved" }
func (s *bridgePort) Side() Side           { return Host }
func (s *bridgePort) Shared() bool         { return false }
func (s *bridgePort) on() linkName         { return linkName{Host, s.Link} }
func (s *bridgePort) String() string       { return "ip link set " + s.Link + " master " + s.Master }
func (s *bridgePort) remove(*Engine) error { return nil }

func (s *bridgePort) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Host, s.Link)
	if err != nil {
		return nil, err
	}
	if l.Master == 0 {
		return []string{"is not a port of " + s.Master}, nil
	}
	return nil, nil
}

func (s *bridgePort) ensure(e *Engine) error {
	i, err := e.LinkIndex(Host, s.Link)
	if err != nil {
		return err
	}
	master, err := e.Link(Host, s.Master)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, 0, 0)
	body.Uint32(unix.IFLA_MASTER, uint32(master.Index))
	return e.send(s, Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

// restore sets the owner tag of the pair.
func (v *Veth) restore(e *Engine) error {
	if v.IsShared {
		return v.ensure(e)
	}
	return e.send(v, Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: alias(v.Name, v.OwnerTag)}, nil)
}

func (s *StackedLink) restore(e *Engine) error { return e.setTag(s, s.Name, s.OwnerTag) }
func (t *Tap) restore(e *Engine) error         { return e.setTag(t, t.Name, t.OwnerTag) }
func (d *Dummy) restore(e *Engine) error       { return e.setTag(d, d.Name, d.OwnerTag) }
func (m *HostDevice) restore(e *Engine) error  { return e.setTag(m, m.Name, m.OwnerTag) }

// setTag sets the owner tag of a container's link.
func (e *Engine) setTag(o Object, name, tag string) error {
	return e.send(o, Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: alias(name, tag)}, nil)
}

// restore creates the link, or restores what an existing link lost.
func (i *IFB) restore(e *Engine) error {
	l, err := e.Link(Host, i.Name)
	if errors.Is(err, os.ErrNotExist) {
		return i.ensure(e)
	}
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(l.Index, unix.IFF_UP, unix.IFF_UP)
	body.Bytes(unix.IFLA_IFALIAS, []byte(i.OwnerTag))
	return e.send(i, Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

// restore replaces whatever qdisc is in place. Its filters are restored after it.
func (q *Qdisc) restore(e *Engine) error {
	if err := q.remove(e); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return q.ensure(e)
}

// restore replaces a filter that sends its packets elsewhere.
func (f *TCFilter) restore(e *Engine) error {
	i, err := e.LinkIndex(f.In, f.Link)
	if err != nil {
		return err
	}
	b := tcmsg(i, f.Parent, 0, uint32(f.Priority)<<16|uint32(f.protocol()))
	_, err = e.Request(f.In, netlink.Request{Type: unix.RTM_DELTFILTER, Flags: 0, Body: b})
	if err != nil && !netlink.IsAbsent(err) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return f.ensure(e)
}

// restore waits for the port and announces the current address of the link, which a later plugin may have changed.
func (a *AnnounceAddresses) restore(e *Engine) error {
	l, err := e.Link(Container, a.Link)
	if err != nil {
		return err
	}
	again := *a
	again.MAC = l.MAC
	err = again.ensure(e)
	if err == nil {
		return nil
	}
	// The bridge is up and the port has a carrier, so something disabled the port.
	i, err2 := e.LinkIndex(Host, a.Port)
	if err2 != nil {
		return err2
	}
	body := netlink.LinkMessage(i, 0, 0)
	body[0] = unix.AF_BRIDGE
	body.Nest(unix.IFLA_PROTINFO, func(n *netlink.Buffer) { n.Uint8(brportState, PortForwarding) })
	if _, err2 := e.Request(Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}); err2 != nil {
		return err
	}
	return again.ensure(e)
}

// restore adds the route to the table of the link's other routes: the VRF's table if the link is a member of a VRF.
func (r *Route) restore(e *Engine) error {
	l, err := e.Link(r.In, r.Link)
	if err != nil {
		return err
	}
	if l.Master == 0 || r.Table != 0 {
		return r.ensure(e)
	}
	master, err := e.LinkByIndex(r.In, l.Master)
	if err != nil {
		return err
	}
	in := *r
	in.Table = master.VRFTable() // 0 if the master is not a VRF
	return in.ensure(e)
}

// drift ignores a third-party chain that is gone: it drops nothing, so it needs no accept rule.
func (a *ForwardRule) drift(e *Engine) ([]string, error) {
	d, err := a.diff(e)
	if netlink.IsAbsent(err) {
		return nil, nil
	}
	return d, err
}

// drift ignores zones while firewalld is not running.
func (z *ZoneSource) drift(e *Engine) ([]string, error) {
	if !Firewalld() {
		return nil, nil
	}
	return z.diff(e)
}

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

func (c *connectedRoute) kind() string                     { return "connected" }
func (c *connectedRoute) Side() Side                       { return c.In }
func (c *connectedRoute) Shared() bool                     { return false }
func (c *connectedRoute) String() string                   { return c.Route.String() + " proto kernel" }
func (c *connectedRoute) links() []linkName                { return nil }
func (c *connectedRoute) on() linkName                     { return linkName{c.In, c.Link} }
func (c *connectedRoute) ensure(e *Engine) error           { return c.restore(e) }
func (c *connectedRoute) restore(e *Engine) error          { return c.Route.restore(e) }
func (c *connectedRoute) remove(e *Engine) error           { return nil }
func (c *connectedRoute) diff(e *Engine) ([]string, error) { return c.drift(e) }

// drift ignores a link that is down or lacks the address. Other objects report that.
func (c *connectedRoute) drift(e *Engine) ([]string, error) {
	l, err := e.Link(c.In, c.Link)
	if err != nil || !l.Up {
		return nil, err
	}
	have, err := e.Routes(c.In, netlink.AddrFamily(c.Dst.Addr()), 0)
	if err != nil {
		return nil, err
	}
	for _, h := range have {
		if h.Dst == c.Dst && h.Index == l.Index {
			return nil, nil
		}
	}
	return []string{"is missing"}, nil
}

// restore removes the route, whoever added it.
func (n *AbsentRoute) restore(e *Engine) error {
	i, err := e.LinkIndex(n.Route.In, n.Route.Link)
	if err != nil {
		return err
	}
	body := n.Route.Message(i)
	body[5], body[6] = unix.RTPROT_UNSPEC, unix.RT_SCOPE_NOWHERE // wildcards in a deletion
	return e.send(n, n.Route.In, netlink.Request{Type: unix.RTM_DELROUTE, Flags: 0, Body: body}, ignoreAbsent)
}
