package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tunnel is what the links of the agent have in common: they are owned by their
// alias, are made with all that they state in one write, and are changed in place
// where the kernel lets them be.
type tunnel struct {
	side      Side
	name, typ string
	mac       string // "": it has none
	mtu       int    // bytes; 0: the kernel's choice
	mark      string
	data      func(n *buf, under int)               // IFLA_INFO_DATA at birth; under: the underlay's number
	underlay  string                                // a link of the host that it is bound to; "": none
	differs   func(l *LinkInfo, under int) []string // what cannot be changed in place
}

// ensureTunnel makes it, adapts it, or, where it is ours and cannot be adapted,
// makes it anew.
func (e *Engine) ensureTunnel(o Object, t tunnel) error {
	under, err := e.underlay(t)
	if err != nil {
		return err
	}
	l, err := e.Link(t.side, t.name)
	if errors.Is(err, os.ErrNotExist) {
		return e.bearTunnel(o, t, under)
	}
	if err != nil {
		return err
	}
	mine := sameOwner(l.Alias, t.mark)
	if l.Kind != t.typ || !mine && l.Alias != "" {
		return fmt.Errorf("%s exists and is %s%s: remove it or choose another name", t.name, kindWords(l), whose(l))
	}
	fixed := t.differs(l, under)
	switch {
	case len(fixed) == 0:
		return errors.Join(e.adaptTunnel(o, t, l), e.deafen(t))
	case !mine:
		return fmt.Errorf("%s exists%s and %s: remove it or choose another name", t.name, whose(l), strings.Join(fixed, ", "))
	}
	delete(e.index[t.side], t.name)
	if _, err := e.now(t.side, request{unix.RTM_DELLINK, 0, ifinfo(l.Index, 0, 0)}); err != nil && !isAbsent(err) {
		return fmt.Errorf("remove it, to make it anew: %w", err)
	}
	return e.bearTunnel(o, t, under)
}

// sameOwner tells whether two marks begin with the same word: the rest of ours may
// be another version's.
func sameOwner(alias, mark string) bool {
	a, _, _ := strings.Cut(alias, " ")
	b, _, _ := strings.Cut(mark, " ")
	return a == b && a != ""
}

// whose says in words to whom a link belongs, as far as it can be seen.
func whose(l *LinkInfo) string {
	if l.Alias == "" {
		return ", not made by this agent"
	}
	return ", marked " + strconv.Quote(l.Alias)
}

func (e *Engine) underlay(t tunnel) (int, error) {
	if t.underlay == "" {
		return 0, nil
	}
	i, err := e.ifindex(Host, t.underlay)
	if err != nil {
		return 0, fmt.Errorf("underlay: %w", err)
	}
	return i, nil
}

// bearTunnel makes it from the host's socket, which the tunnel's packets use
// wherever the link itself is, and marks it in the same write if that can be.
func (e *Engine) bearTunnel(o Object, t tunnel, under int) error {
	body := newLink(t.name, t.mac, t.mtu)
	if t.side == Container {
		if e.ns[Container] == nil {
			return errNoContainer
		}
		body.u32(unix.IFLA_NET_NS_FD, uint32(e.ns[Container].fd))
	}
	body.nest(unix.IFLA_LINKINFO, func(n *buf) {
		n.str(unix.IFLA_INFO_KIND, t.typ)
		n.nest(unix.IFLA_INFO_DATA, func(n *buf) { t.data(n, under) })
	})
	create := request{unix.RTM_NEWLINK, unix.NLM_F_CREATE | unix.NLM_F_EXCL, body}
	err := e.send(o, Host, create, func(r response) error {
		if r.err == nil {
			e.made(o)
		}
		return unknownType(t.typ, r.err)
	})
	if err != nil {
		return err
	}
	if t.hears() {
		if err := errors.Join(e.flush(), e.deafen(t)); err != nil {
			return err
		}
	}
	// The kernel brings a link up before it looks at how addresses are made.
	if err := e.send(o, t.side, request{unix.RTM_SETLINK, 0, t.finish()}, nil); err != nil {
		return err
	}
	up := ifinfo(0, unix.IFF_UP, unix.IFF_UP)
	up.str(unix.IFLA_IFNAME, t.name)
	return e.send(o, t.side, request{unix.RTM_SETLINK, 0, up}, func(r response) error {
		if errors.Is(r.err, unix.EADDRINUSE) {
			return fmt.Errorf("its port is taken by another program or tunnel of this host: %w", r.err)
		}
		return r.err
	})
}

// hears tells whether frames arrive by it: whoever can send to its port can say what
// is in them.
func (t tunnel) hears() bool { return t.typ == "vxlan" }

func (t tunnel) routers() string { return "net/ipv6/conf/" + t.name + "/accept_ra" }

// deafen has nobody become a router of this side by what he sends through it.
func (e *Engine) deafen(t tunnel) error {
	if !t.hears() {
		return nil
	}
	return e.inside(t.side, func() error { return writeSysctl(t.routers(), "0", true) })
}

// hearing is what is wrong if routers are heard.
func (e *Engine) hearing(t tunnel) (d []string, err error) {
	if !t.hears() {
		return nil, nil
	}
	err = e.inside(t.side, func() error {
		have, err := readSysctl(t.routers())
		if err == nil && have != "0" {
			d = append(d, "accept_ra is "+have+", want 0")
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // a kernel without IPv6
		}
		return err
	})
	return d, err
}

// finish marks it; a link-local address of its own serves nobody.
func (t tunnel) finish() buf {
	body := ifinfo(0, 0, 0)
	body.str(unix.IFLA_IFNAME, t.name)
	body.bytes(unix.IFLA_IFALIAS, []byte(t.mark))
	body.nest(unix.IFLA_AF_SPEC, func(n *buf) {
		n.nest(unix.AF_INET6, func(n *buf) { n.u8(unix.IFLA_INET6_ADDR_GEN_MODE, addrGenNone) })
	})
	return body
}

// adaptTunnel changes what differs and can be changed while it carries traffic.
func (e *Engine) adaptTunnel(o Object, t tunnel, l *LinkInfo) error {
	if len(t.adaptable(l)) == 0 {
		return nil
	}
	body := ifinfo(l.Index, unix.IFF_UP, unix.IFF_UP)
	if t.mac != "" && l.MAC != t.mac {
		body.bytes(unix.IFLA_ADDRESS, macBytes(t.mac))
	}
	if t.mtu > 0 && l.MTU != t.mtu {
		body.u32(unix.IFLA_MTU, uint32(t.mtu))
	}
	if l.Alias != t.mark {
		body.bytes(unix.IFLA_IFALIAS, []byte(t.mark))
	}
	return e.send(o, t.side, request{unix.RTM_SETLINK, 0, body}, nil)
}

func (t tunnel) adaptable(l *LinkInfo) (d []string) {
	if t.mac != "" && l.MAC != t.mac {
		d = append(d, fmt.Sprintf("address is %s, want %s", l.MAC, t.mac))
	}
	if t.mtu > 0 && l.MTU != t.mtu {
		d = append(d, fmt.Sprintf("mtu is %d, want %d", l.MTU, t.mtu))
	}
	if l.Alias != t.mark {
		d = append(d, fmt.Sprintf("alias is %q, want %q", l.Alias, t.mark))
	}
	if !l.Up {
		d = append(d, "is down")
	}
	return d
}

func (e *Engine) diffTunnel(t tunnel) ([]string, error) {
	l, err := e.Link(t.side, t.name)
	if err != nil {
		return nil, err
	}
	if l.Kind != t.typ {
		return []string{"is no " + t.typ + " but " + kindWords(l)}, nil
	}
	under, err := e.underlay(t)
	if errors.Is(err, os.ErrNotExist) {
		return append([]string{"its underlay " + t.underlay + " is missing"}, t.adaptable(l)...), nil
	}
	if err != nil {
		return nil, err
	}
	d, err := e.hearing(t)
	return slices.Concat(t.differs(l, under), t.adaptable(l), d), err
}

// removeTunnel deletes a link of ours; another's of that name is left alone.
func (e *Engine) removeTunnel(t tunnel) error {
	l, err := e.Link(t.side, t.name)
	if err != nil {
		return err
	}
	if !sameOwner(l.Alias, t.mark) {
		return nil
	}
	delete(e.index[t.side], t.name)
	_, err = e.now(t.side, request{unix.RTM_DELLINK, 0, ifinfo(l.Index, 0, 0)})
	return err
}
