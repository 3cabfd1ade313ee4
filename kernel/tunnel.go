package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// tunnel has the common methods of the agent's tunnel links. Their alias names the owner. They are created with all
// their attributes in one write, and updated in place where the kernel allows it.
type tunnel struct {
	side      Side
	name, typ string
	mac       string // "": none
	mtu       int    // bytes; 0: the kernel's choice
	port      int    // UDP port that the link listens on; 0: none
	ownerTag  string
	data      func(n *netlink.Buffer, under int)    // writes IFLA_INFO_DATA at creation; under: index of the underlay
	underlay  string                                // the host's link that the tunnel is bound to; "": none
	differs   func(l *LinkInfo, under int) []string // what cannot be changed in place
}

// ensureTunnel creates or updates the link. It creates our own link again if it cannot be updated in place.
func (e *Engine) ensureTunnel(o Object, t tunnel) error {
	under, err := e.underlay(t)
	if err != nil {
		return err
	}
	l, err := e.Link(t.side, t.name)
	if errors.Is(err, os.ErrNotExist) {
		return e.createTunnel(o, t, under)
	}
	if err != nil {
		return err
	}
	mine := sameOwner(l.Alias, t.ownerTag)
	if l.Kind != t.typ || !mine && l.Alias != "" {
		return fmt.Errorf("%s exists and is %s%s: remove it or choose another name", t.name, describeKind(l), describeOwner(l))
	}
	fixed := t.differs(l, under)
	switch {
	case len(fixed) == 0:
		return errors.Join(e.updateTunnel(o, t, l), e.ignoreRouters(t))
	case !mine:
		return fmt.Errorf("%s exists%s and %s: remove it or choose another name", t.name, describeOwner(l), strings.Join(fixed, ", "))
	}
	delete(e.index[t.side], t.name)
	if _, err := e.Request(t.side, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)}); err != nil && !netlink.IsAbsent(err) {
		return fmt.Errorf("remove it to create it again: %w", err)
	}
	return e.createTunnel(o, t, under)
}

// sameOwner reports whether two owner tags begin with the same word. The rest may come from another version.
func sameOwner(alias, tag string) bool {
	a, _, _ := strings.Cut(alias, " ")
	b, _, _ := strings.Cut(tag, " ")
	return a == b && a != ""
}

// describeOwner returns a text about the owner of a link.
func describeOwner(l *LinkInfo) string {
	if l.Alias == "" {
		return ", not created by this agent"
	}
	return ", with the alias " + strconv.Quote(l.Alias)
}

func (e *Engine) underlay(t tunnel) (int, error) {
	if t.underlay == "" {
		return 0, nil
	}
	i, err := e.LinkIndex(Host, t.underlay)
	if err != nil {
		return 0, fmt.Errorf("underlay: %w", err)
	}
	return i, nil
}

// createTunnel creates the link with the host's socket: the tunnel's own packets then use the host's namespace,
// wherever the link is. The write also sets the owner tag if possible.
func (e *Engine) createTunnel(o Object, t tunnel, under int) error {
	body := newLink(t.name, t.mac, t.mtu)
	if t.side == Container {
		if e.ns[Container] == nil {
			return errNoContainer
		}
		body.Uint32(unix.IFLA_NET_NS_FD, uint32(e.ns[Container].FD()))
	}
	body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, t.typ)
		n.Nest(unix.IFLA_INFO_DATA, func(n *netlink.Buffer) { t.data(n, under) })
	})
	create := netlink.Request{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: body}
	err := e.send(o, Host, create, func(r netlink.Response) error {
		if r.Err == nil {
			e.noteCreated(o)
		}
		return t.explainCreate(r.Err)
	})
	if err != nil {
		return err
	}
	if t.bridgesFrames() {
		if err := e.flush(); err != nil {
			return err
		}
		if err := e.ignoreRouters(t); err != nil {
			return err
		}
	}
	// A tunnel needs no link-local address. In one message with IFF_UP the kernel would bring the link up first.
	if err := e.tagWithoutLinkLocal(o, t.side, t.name, t.ownerTag); err != nil {
		return err
	}
	up := netlink.LinkMessage(0, unix.IFF_UP, unix.IFF_UP)
	up.String(unix.IFLA_IFNAME, t.name)
	return e.send(o, t.side, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: up}, t.explainUp)
}

// explainCreate explains the error of the request that creates the link.
func (t tunnel) explainCreate(err error) error {
	const taken = "A VXLAN device with the specified VNI already exists"
	if e, ok := errors.AsType[*netlink.Error](err); ok && e.Errno == unix.EEXIST && e.Msg == taken {
		return fmt.Errorf(`another link of this host has the same VNI and UDP port ("ip -d link show type vxlan" lists it): remove it, or choose another vni or port: %w`, err)
	}
	return unknownType(t.typ, err)
}

// explainUp explains the kernel's reply to a request that brings the link up, which opens its UDP port.
func (t tunnel) explainUp(r netlink.Response) error { return explainPort(t.port, r.Err) }

// explainPort explains the error of a tunnel that opens a UDP port.
func explainPort(port int, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("another program or tunnel of this host uses UDP port %d: stop it, or choose another port: %w", port, err)
	}
	return err
}

// bridgesFrames reports whether Ethernet frames arrive through the tunnel. Anyone who can send to its port controls
// their content.
func (t tunnel) bridgesFrames() bool { return t.typ == "vxlan" }

func (t tunnel) acceptRAKey() string { return "net/ipv6/conf/" + t.name + "/accept_ra" }

// ignoreRouters stops a peer from becoming a router of this namespace through the tunnel.
func (e *Engine) ignoreRouters(t tunnel) error {
	if !t.bridgesFrames() {
		return nil
	}
	return e.InNetns(t.side, func() error { return writeSysctl(t.acceptRAKey(), "0", true) })
}

// acceptsRouters returns a difference if the link accepts router advertisements.
func (e *Engine) acceptsRouters(t tunnel) (d []string, err error) {
	if !t.bridgesFrames() {
		return nil, nil
	}
	err = e.InNetns(t.side, func() error {
		have, err := readSysctl(t.acceptRAKey())
		if err == nil && have != "0" {
			d = append(d, "accept_ra is "+have+", want 0")
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // the link has no IPv6
		}
		return err
	})
	return d, err
}

// updateTunnel changes what differs and can be changed without interrupting traffic.
func (e *Engine) updateTunnel(o Object, t tunnel, l *LinkInfo) error {
	if len(t.changeable(l)) == 0 {
		return nil
	}
	body := netlink.LinkMessage(l.Index, unix.IFF_UP, unix.IFF_UP)
	if t.mac != "" && l.MAC != t.mac {
		body.Bytes(unix.IFLA_ADDRESS, macBytes(t.mac))
	}
	if t.mtu > 0 && l.MTU != t.mtu {
		body.Uint32(unix.IFLA_MTU, uint32(t.mtu))
	}
	if l.Alias != t.ownerTag {
		body.Bytes(unix.IFLA_IFALIAS, []byte(t.ownerTag))
	}
	return e.send(o, t.side, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, t.explainUp)
}

func (t tunnel) changeable(l *LinkInfo) (d []string) {
	if t.mac != "" && l.MAC != t.mac {
		d = append(d, fmt.Sprintf("address is %s, want %s", l.MAC, t.mac))
	}
	if t.mtu > 0 && l.MTU != t.mtu {
		d = append(d, fmt.Sprintf("mtu is %d, want %d", l.MTU, t.mtu))
	}
	if l.Alias != t.ownerTag {
		d = append(d, fmt.Sprintf("alias is %q, want %q", l.Alias, t.ownerTag))
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
		return []string{"is not of type " + t.typ + " but " + describeKind(l)}, nil
	}
	under, err := e.underlay(t)
	if errors.Is(err, os.ErrNotExist) {
		return append([]string{"its underlay " + t.underlay + " is missing"}, t.changeable(l)...), nil
	}
	if err != nil {
		return nil, err
	}
	d, err := e.acceptsRouters(t)
	return slices.Concat(t.differs(l, under), t.changeable(l), d), err
}

// removeTunnel deletes the link if it has our owner tag.
func (e *Engine) removeTunnel(t tunnel) error {
	l, err := e.Link(t.side, t.name)
	if err != nil {
		return err
	}
	if !sameOwner(l.Alias, t.ownerTag) {
		return nil
	}
	delete(e.index[t.side], t.name)
	_, err = e.Request(t.side, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)})
	return err
}
