package kernel

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/netns"
)

// NetnsVeth is a veth pair of the agent between two namespaces, both ends up. Both ends carry the owner tag. The
// reconciler of the other namespace expects its end as an ExpectedLink.
type NetnsVeth struct {
	base
	In       Side   `json:",omitzero"`
	Name     string `json:",omitzero"`
	MAC      string `json:",omitzero"`
	PeerIn   string `json:",omitzero"` // path of the peer's namespace; "": the engine's other side
	PeerName string `json:",omitzero"`
	PeerMAC  string `json:",omitzero"`
	MTU      int    `json:",omitzero"`     // bytes
	OwnerTag string `json:"Mark,omitzero"` // alias of both ends
}

func (p *NetnsVeth) kind() string      { return "pair" }
func (p *NetnsVeth) Side() Side        { return p.In }
func (p *NetnsVeth) Shared() bool      { return false }
func (p *NetnsVeth) links() []linkName { return []linkName{{p.In, p.Name}} }

func (p *NetnsVeth) String() string {
	where := p.PeerIn
	if where == "" {
		where = p.other().String()
	}
	return fmt.Sprintf("ip link add %s address %s mtu %d up type veth peer name %s address %s netns %s", p.Name, p.MAC, p.MTU, p.PeerName, p.PeerMAC, where)
}

func (p *NetnsVeth) other() Side {
	if p.In == Host {
		return Container
	}
	return Host
}

// withPeer calls f with a socket in the peer's namespace and a handle of it.
func (p *NetnsVeth) withPeer(e *Engine, f func(*netlink.Conn, *netns.Handle) error) error {
	ns := e.ns[p.other()]
	if p.PeerIn == "" {
		c, err := e.route(p.other())
		if err != nil {
			return err
		}
		return f(c, ns)
	}
	ns, err := netns.Open(p.PeerIn)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(func() error {
		c, err := netlink.Dial(unix.NETLINK_ROUTE, e.rx)
		if err != nil {
			return err
		}
		defer c.Close()
		return f(c, ns)
	})
}

func (p *NetnsVeth) ensure(e *Engine) error {
	if err := e.flush(); err != nil {
		return err
	}
	l, err := e.Link(p.In, p.Name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return p.withPeer(e, func(far *netlink.Conn, ns *netns.Handle) error {
		if l != nil && p.intact(l, far) {
			return p.update(e, far)
		}
		if l != nil { // its peer is elsewhere, or the name belongs to another link
			if !sameOwner(l.Alias, p.OwnerTag) {
				return fmt.Errorf("%s exists and is %s%s: remove it", p.Name, describeKind(l), describeOwner(l))
			}
			if _, err := e.Request(p.In, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)}); err != nil && !netlink.IsAbsent(err) {
				return err
			}
			delete(e.index[p.In], p.Name)
		}
		if _, err := e.Request(p.In, netlink.Request{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: p.createMessage(ns)}); err != nil {
			return fmt.Errorf("create it: %w", err)
		}
		return p.update(e, far)
	})
}

func (p *NetnsVeth) createMessage(ns *netns.Handle) netlink.Buffer {
	body := newLink(p.Name, p.MAC, p.MTU)
	body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, "veth")
		n.Nest(unix.IFLA_INFO_DATA, func(n *netlink.Buffer) {
			n.Nest(infoPeer, func(n *netlink.Buffer) {
				*n = append(*n, newLink(p.PeerName, p.PeerMAC, p.MTU)...)
				n.Uint32(unix.IFLA_NET_NS_FD, uint32(ns.FD()))
			})
		})
	})
	return body
}

// intact reports whether the peer is in its namespace.
func (p *NetnsVeth) intact(l *LinkInfo, far *netlink.Conn) bool {
	if l.Kind != "veth" || !sameOwner(l.Alias, p.OwnerTag) {
		return false
	}
	peer, err := linkByName(far, p.PeerName)
	return err == nil && peer.Kind == "veth" && peer.Index == l.Peer
}

func linkByName(c *netlink.Conn, name string) (*LinkInfo, error) {
	b := netlink.LinkMessage(0, 0, 0)
	b.String(unix.IFLA_IFNAME, name)
	r, err := c.Do([]netlink.Request{{Type: unix.RTM_GETLINK, Flags: unix.NLM_F_ACK, Body: b}})
	if err == nil {
		err = r[0].Err
	}
	if err == nil && len(r[0].Messages) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return ParseLink(r[0].Messages[0]), nil
}

// update sets the attributes and owner tags of both ends, and brings them up.
func (p *NetnsVeth) update(e *Engine, far *netlink.Conn) error {
	r, err := far.Do(p.endRequests(p.PeerName, p.PeerMAC))
	if err == nil {
		err = errors.Join(ignoreNoIPv6(r[0]), r[1].Err)
	}
	if err != nil {
		return fmt.Errorf("its peer %s: %w", p.PeerName, err)
	}
	if r, err = e.Requests(p.In, p.endRequests(p.Name, p.MAC)); err != nil {
		return err
	}
	return errors.Join(ignoreNoIPv6(r[0]), r[1].Err)
}

// endRequests returns the two requests that set up one end. It gets no link-local address.
func (p *NetnsVeth) endRequests(name, mac string) []netlink.Request {
	mode := noLinkLocal(name)
	mode.Flags = unix.NLM_F_ACK
	return []netlink.Request{mode, {Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_ACK, Body: p.state(name, mac)}}
}

func (p *NetnsVeth) state(name, mac string) netlink.Buffer {
	body := netlink.LinkMessage(0, unix.IFF_UP, unix.IFF_UP)
	body.String(unix.IFLA_IFNAME, name)
	body.Bytes(unix.IFLA_ADDRESS, macBytes(mac))
	body.Uint32(unix.IFLA_MTU, uint32(p.MTU))
	body.Bytes(unix.IFLA_IFALIAS, []byte(p.OwnerTag))
	return body
}

func (p *NetnsVeth) diff(e *Engine) (d []string, err error) {
	l, err := e.Link(p.In, p.Name)
	if err != nil {
		return nil, err
	}
	add := func(l *LinkInfo, mac string) {
		if !l.Up {
			d = append(d, l.Name+" is down")
		}
		if l.MTU != p.MTU {
			d = append(d, fmt.Sprintf("mtu of %s is %d, want %d", l.Name, l.MTU, p.MTU))
		}
		if l.MAC != mac {
			d = append(d, fmt.Sprintf("address of %s is %s, want %s", l.Name, l.MAC, mac))
		}
		if l.Alias != p.OwnerTag {
			d = append(d, fmt.Sprintf("alias of %s is %q, want %q", l.Name, l.Alias, p.OwnerTag))
		}
	}
	err = p.withPeer(e, func(far *netlink.Conn, _ *netns.Handle) error {
		if !p.intact(l, far) {
			d = append(d, "its peer "+p.PeerName+" is not in its namespace")
			return nil
		}
		peer, err := linkByName(far, p.PeerName)
		if err == nil {
			add(l, p.MAC)
			add(peer, p.PeerMAC)
		}
		return err
	})
	return d, err
}

func (p *NetnsVeth) remove(e *Engine) error { return e.deleteLink(p.In, p.Name, p.OwnerTag) }

// ExpectedLink is a link that the reconciler of another namespace creates: the other end of its NetnsVeth.
type ExpectedLink struct {
	base
	In   Side   `json:",omitzero"`
	Link string `json:",omitzero"`
}

func (g *ExpectedLink) kind() string      { return "given" }
func (g *ExpectedLink) Side() Side        { return g.In }
func (g *ExpectedLink) Shared() bool      { return true }
func (g *ExpectedLink) links() []linkName { return []linkName{{g.In, g.Link}} }
func (g *ExpectedLink) String() string    { return "ip link show " + g.Link }

func (g *ExpectedLink) ensure(*Engine) error {
	return fmt.Errorf("its peer does not exist yet: %w", os.ErrNotExist)
}

func (g *ExpectedLink) diff(e *Engine) ([]string, error) {
	_, err := e.Link(g.In, g.Link)
	return nil, err
}

func (g *ExpectedLink) remove(*Engine) error { return nil }
