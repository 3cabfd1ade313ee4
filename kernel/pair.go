package kernel

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pair is a veth pair of the agent between two namespaces, both ends up. Each end
// carries a mark: the other one's reconciler wants it by Given.
type Pair struct {
	base
	In       Side   `json:",omitzero"`
	Name     string `json:",omitzero"`
	MAC      string `json:",omitzero"`
	PeerIn   string `json:",omitzero"` // path of the other end's namespace; "": the engine's other side
	PeerName string `json:",omitzero"`
	PeerMAC  string `json:",omitzero"`
	MTU      int    `json:",omitzero"` // bytes
	Mark     string `json:",omitzero"` // alias of both
}

func (p *Pair) kind() string      { return "pair" }
func (p *Pair) Side() Side        { return p.In }
func (p *Pair) Shared() bool      { return false }
func (p *Pair) links() []linkName { return []linkName{{p.In, p.Name}} }

func (p *Pair) String() string {
	where := p.PeerIn
	if where == "" {
		where = p.other().String()
	}
	return fmt.Sprintf("ip link add %s address %s mtu %d up type veth peer name %s address %s netns %s", p.Name, p.MAC, p.MTU, p.PeerName, p.PeerMAC, where)
}

func (p *Pair) other() Side {
	if p.In == Host {
		return Container
	}
	return Host
}

// far calls f with a socket in the other end's namespace, and that namespace.
func (p *Pair) far(e *Engine, f func(*conn, *Netns) error) error {
	ns := e.ns[p.other()]
	if p.PeerIn == "" {
		c, err := e.route(p.other())
		if err != nil {
			return err
		}
		return f(c, ns)
	}
	ns, err := OpenNetns(p.PeerIn)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.doFrom(e.ns[Host], func() error {
		c, err := dial(unix.NETLINK_ROUTE, e.rx)
		if err != nil {
			return err
		}
		defer c.close()
		return f(c, ns)
	})
}

func (p *Pair) ensure(e *Engine) error {
	if err := e.flush(); err != nil {
		return err
	}
	l, err := e.Link(p.In, p.Name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return p.far(e, func(far *conn, ns *Netns) error {
		if l != nil && p.whole(l, far) {
			return p.adapt(e, far)
		}
		if l != nil { // its other end is elsewhere, or the name is another's
			if !sameOwner(l.Alias, p.Mark) {
				return fmt.Errorf("%s exists and is %s%s: remove it", p.Name, kindWords(l), whose(l))
			}
			if _, err := e.now(p.In, request{unix.RTM_DELLINK, 0, ifinfo(l.Index, 0, 0)}); err != nil && !isAbsent(err) {
				return err
			}
			delete(e.index[p.In], p.Name)
		}
		if _, err := e.now(p.In, request{unix.RTM_NEWLINK, unix.NLM_F_CREATE | unix.NLM_F_EXCL, p.birth(ns)}); err != nil {
			return fmt.Errorf("make it: %w", err)
		}
		return p.adapt(e, far)
	})
}

func (p *Pair) birth(ns *Netns) buf {
	body := newLink(p.Name, p.MAC, p.MTU)
	body.nest(unix.IFLA_LINKINFO, func(n *buf) {
		n.str(unix.IFLA_INFO_KIND, "veth")
		n.nest(unix.IFLA_INFO_DATA, func(n *buf) {
			n.nest(infoPeer, func(n *buf) {
				*n = append(*n, newLink(p.PeerName, p.PeerMAC, p.MTU)...)
				n.u32(unix.IFLA_NET_NS_FD, uint32(ns.fd))
			})
		})
	})
	return body
}

// whole tells whether the other end is where it should be.
func (p *Pair) whole(l *LinkInfo, far *conn) bool {
	if l.Kind != "veth" || !sameOwner(l.Alias, p.Mark) {
		return false
	}
	peer, err := far.linkByName(p.PeerName)
	return err == nil && peer.Kind == "veth" && peer.Index == l.Peer
}

func (c *conn) linkByName(name string) (*LinkInfo, error) {
	b := ifinfo(0, 0, 0)
	b.str(unix.IFLA_IFNAME, name)
	r, err := c.do([]request{{unix.RTM_GETLINK, unix.NLM_F_ACK, b}})
	if err == nil {
		err = r[0].err
	}
	if err == nil && len(r[0].msgs) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return parseLink(r[0].msgs[0]), nil
}

// adapt marks both ends, and brings them up.
func (p *Pair) adapt(e *Engine, far *conn) error {
	r, err := far.do([]request{{unix.RTM_NEWLINK, unix.NLM_F_ACK, p.state(p.PeerName, p.PeerMAC)}})
	if err == nil {
		err = r[0].err
	}
	if err != nil {
		return fmt.Errorf("its other end %s: %w", p.PeerName, err)
	}
	_, err = e.now(p.In, request{unix.RTM_NEWLINK, 0, p.state(p.Name, p.MAC)})
	return err
}

func (p *Pair) state(name, mac string) buf {
	body := ifinfo(0, unix.IFF_UP, unix.IFF_UP)
	body.str(unix.IFLA_IFNAME, name)
	body.bytes(unix.IFLA_ADDRESS, macBytes(mac))
	body.u32(unix.IFLA_MTU, uint32(p.MTU))
	body.bytes(unix.IFLA_IFALIAS, []byte(p.Mark))
	body.nest(unix.IFLA_AF_SPEC, func(n *buf) {
		n.nest(unix.AF_INET6, func(n *buf) { n.u8(unix.IFLA_INET6_ADDR_GEN_MODE, addrGenNone) })
	})
	return body
}

func (p *Pair) diff(e *Engine) (d []string, err error) {
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
		if l.Alias != p.Mark {
			d = append(d, fmt.Sprintf("alias of %s is %q, want %q", l.Name, l.Alias, p.Mark))
		}
	}
	err = p.far(e, func(far *conn, _ *Netns) error {
		if !p.whole(l, far) {
			d = append(d, "its other end "+p.PeerName+" is not where it should be")
			return nil
		}
		peer, err := far.linkByName(p.PeerName)
		if err == nil {
			add(l, p.MAC)
			add(peer, p.PeerMAC)
		}
		return err
	})
	return d, err
}

func (p *Pair) remove(e *Engine) error { return e.deleteLink(p.In, p.Name, p.Mark) }

// Given is a link that is wanted and that another namespace's reconciler makes: the
// far end of its Pair.
type Given struct {
	base
	In   Side   `json:",omitzero"`
	Link string `json:",omitzero"`
}

func (g *Given) kind() string      { return "given" }
func (g *Given) Side() Side        { return g.In }
func (g *Given) Shared() bool      { return true }
func (g *Given) links() []linkName { return []linkName{{g.In, g.Link}} }
func (g *Given) String() string    { return "ip link show " + g.Link }

func (g *Given) ensure(*Engine) error {
	return fmt.Errorf("its other end is not made yet: %w", os.ErrNotExist)
}

func (g *Given) diff(e *Engine) ([]string, error) {
	_, err := e.Link(g.In, g.Link)
	return nil, err
}

func (g *Given) remove(*Engine) error { return nil }
