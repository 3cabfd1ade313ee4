package kernel

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// enslaved is a host's link in its bridge: part of the pair's birth, and what a
// repair brings back by itself. A link that somebody gave another master is left there.
type enslaved struct {
	base
	Link, Master string
}

func (s *enslaved) kind() string         { return "enslaved" }
func (s *enslaved) Side() Side           { return Host }
func (s *enslaved) Shared() bool         { return false }
func (s *enslaved) on() linkName         { return linkName{Host, s.Link} }
func (s *enslaved) String() string       { return "ip link set " + s.Link + " master " + s.Master }
func (s *enslaved) remove(*Engine) error { return nil }

func (s *enslaved) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Host, s.Link)
	if err != nil {
		return nil, err
	}
	if l.Master == 0 {
		return []string{"is no port of " + s.Master}, nil
	}
	return nil, nil
}

func (s *enslaved) ensure(e *Engine) error {
	i, err := e.ifindex(Host, s.Link)
	if err != nil {
		return err
	}
	master, err := e.Link(Host, s.Master)
	if err != nil {
		return err
	}
	body := ifinfo(i, 0, 0)
	body.u32(unix.IFLA_MASTER, uint32(master.Index))
	return e.send(s, Host, request{unix.RTM_SETLINK, 0, body}, nil)
}

// restore gives the pair its owner's mark back.
func (v *Veth) restore(e *Engine) error {
	if v.IsShared {
		return v.ensure(e)
	}
	return e.send(v, Host, request{unix.RTM_SETLINK, 0, alias(v.Name, v.Mark)}, nil)
}

func (s *Sub) restore(e *Engine) error   { return e.remark(s, s.Name, s.Mark) }
func (t *Tap) restore(e *Engine) error   { return e.remark(t, t.Name, t.Mark) }
func (d *Dummy) restore(e *Engine) error { return e.remark(d, d.Name, d.Mark) }
func (m *Moved) restore(e *Engine) error { return e.remark(m, m.Name, m.Mark) }

// remark gives a link of the container its owner's mark back.
func (e *Engine) remark(o Object, name, mark string) error {
	return e.send(o, Container, request{unix.RTM_SETLINK, 0, alias(name, mark)}, nil)
}

// restore makes the link, or gives one that stands what it lost.
func (i *IFB) restore(e *Engine) error {
	l, err := e.Link(Host, i.Name)
	if errors.Is(err, os.ErrNotExist) {
		return i.ensure(e)
	}
	if err != nil {
		return err
	}
	body := ifinfo(l.Index, unix.IFF_UP, unix.IFF_UP)
	body.bytes(unix.IFLA_IFALIAS, []byte(i.Mark))
	return e.send(i, Host, request{unix.RTM_SETLINK, 0, body}, nil)
}

// restore puts the queue in the place of whatever is there instead; its filters
// follow.
func (q *Qdisc) restore(e *Engine) error {
	if err := q.remove(e); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return q.ensure(e)
}

// restore replaces a filter that sends its packets elsewhere.
func (f *Filter) restore(e *Engine) error {
	i, err := e.ifindex(f.In, f.Link)
	if err != nil {
		return err
	}
	b := tcmsg(i, f.Parent, 0, uint32(f.Priority)<<16|uint32(f.protocol()))
	_, err = e.now(f.In, request{unix.RTM_DELTFILTER, 0, b})
	if err != nil && !isAbsent(err) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return f.ensure(e)
}

// restore waits for the port, and announces the address that the link has: a
// later plugin may have given it another.
func (a *Announced) restore(e *Engine) error {
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
	// Somebody has switched the port off: its bridge and carrier are there.
	i, err2 := e.ifindex(Host, a.Port)
	if err2 != nil {
		return err2
	}
	body := ifinfo(i, 0, 0)
	body[0] = unix.AF_BRIDGE
	body.nest(unix.IFLA_PROTINFO, func(n *buf) { n.u8(brportState, PortForwarding) })
	if _, err2 := e.now(Host, request{unix.RTM_SETLINK, 0, body}); err2 != nil {
		return err
	}
	return again.ensure(e)
}

// restore adds the route where the link's routes are: a member of a virtual
// router has them in that one's table.
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
	in.Table = master.VRFTable() // 0 if it is no virtual router
	return in.ensure(e)
}

// drift: a chain of others that is gone drops nothing, and needs no accept.
func (a *Accept) drift(e *Engine) ([]string, error) {
	d, err := a.diff(e)
	if isAbsent(err) {
		return nil, nil
	}
	return d, err
}

func (a *Accept) restore(e *Engine) error {
	if err := a.remove(e); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return a.ensure(e)
}

// drift: where firewalld does not run, nobody asks for its zones.
func (z *ZoneSource) drift(e *Engine) ([]string, error) {
	if !Firewalld() {
		return nil, nil
	}
	return z.diff(e)
}

// connected is the route to an address's subnet, which the kernel makes by itself
// with the address, or as its link comes up, and not again.
type connected struct{ Route }

func connectedOf(a *Addr) *connected {
	r := Route{In: a.In, Dst: a.Prefix.Masked(), Link: a.Link, Proto: unix.RTPROT_KERNEL}
	if a.Prefix.Addr().Is4() {
		r.Src = a.Prefix.Addr()
	} else {
		r.Metric = kernelMetric
	}
	return &connected{Route: r}
}

const kernelMetric = 256 // of the kernel's own routes of IPv6

func (c *connected) kind() string                     { return "connected" }
func (c *connected) Side() Side                       { return c.In }
func (c *connected) Shared() bool                     { return false }
func (c *connected) String() string                   { return c.Route.String() + " proto kernel" }
func (c *connected) links() []linkName                { return nil }
func (c *connected) on() linkName                     { return linkName{c.In, c.Link} }
func (c *connected) ensure(e *Engine) error           { return c.restore(e) }
func (c *connected) restore(e *Engine) error          { return c.Route.restore(e) }
func (c *connected) remove(e *Engine) error           { return nil }
func (c *connected) diff(e *Engine) ([]string, error) { return c.drift(e) }

// drift: a link that is down, or lacks the address, has no such route; that is told
// by itself.
func (c *connected) drift(e *Engine) ([]string, error) {
	l, err := e.Link(c.In, c.Link)
	if err != nil || !l.Up {
		return nil, err
	}
	have, err := e.Routes(c.In, family(c.Dst.Addr()), 0)
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

// restore takes the route away, whoever brought it back.
func (n *NoRoute) restore(e *Engine) error {
	i, err := e.ifindex(n.Route.In, n.Route.Link)
	if err != nil {
		return err
	}
	body := n.Route.body(i)
	body[5], body[6] = unix.RTPROT_UNSPEC, unix.RT_SCOPE_NOWHERE // any, in a deletion
	return e.send(n, n.Route.In, request{unix.RTM_DELROUTE, 0, body}, absentIsFine)
}
