package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Connection is an entry of connection tracking.
type Connection struct {
	ID       uint32 // number of the entry, which nft(8) writes as "ct id"
	Protocol uint8  // IPPROTO_TCP and others

	// Src and Dst are the ends as the forward or input hook sees the first packet: the original source, and the destination
	// after destination NAT. The port is 0 if the protocol has no ports.
	Src, Dst netip.AddrPort

	// Parent is the connection that announced this one to a helper of the kernel, as the data connections of FTP. It is nil
	// for others.
	Parent *Connection
}

// Conntrack reads the connection tracking entries of a network namespace. It is not safe for concurrent use.
type Conntrack struct {
	entries, addrs *netlink.Conn
}

// OpenConntrack returns a Conntrack for the network namespace of the calling thread.
func OpenConntrack() (*Conntrack, error) {
	rx := make([]byte, netlink.BufferSize)
	entries, err := netlink.Dial(unix.NETLINK_NETFILTER, rx)
	if err != nil {
		return nil, err
	}
	addrs, err := netlink.Dial(unix.NETLINK_ROUTE, rx)
	if err != nil {
		entries.Close()
		return nil, err
	}
	return &Conntrack{entries, addrs}, nil
}

// Close closes the sockets.
func (c *Conntrack) Close() {
	c.entries.Close()
	c.addrs.Close()
}

// LocalAddrs are the addresses whose packets a host receives itself.
type LocalAddrs struct {
	addrs  map[netip.Addr]bool // of its links, and of local routes for one address each
	routes []netip.Prefix      // local routes for several addresses each
}

// Has reports whether the host receives the packets of an address.
func (l *LocalAddrs) Has(a netip.Addr) bool {
	return l.addrs[a] || slices.ContainsFunc(l.routes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// localAddrs lists the host's addresses and the local routes of its table local. It needs both: the kernel may add the route
// of an IPv6 address long after the address. Local routes of other tables apply to some packets only.
func (c *Conntrack) localAddrs() (*LocalAddrs, error) {
	msgs, err := c.addrs.Dump(addrRequest(0))
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	out := &LocalAddrs{addrs: map[netip.Addr]bool{}}
	for _, a := range distinctAddrs(msgs) {
		out.addrs[a] = true
	}
	for _, family := range []byte{IPv4, IPv6} {
		msgs, err := c.addrs.Dump(routesRequest(family, unix.RT_TABLE_LOCAL, 0, unix.RTN_LOCAL))
		if err != nil && !errors.Is(err, unix.EAGAIN) && !netlink.IsAbsent(err) {
			return nil, fmt.Errorf("list the host's local routes: %w", err)
		}
		for _, m := range msgs {
			if len(m) < unix.SizeofRtMsg || m[0] != family || m[7] != unix.RTN_LOCAL {
				continue
			}
			switch r := ParseRoute(m); {
			case r.Table != unix.RT_TABLE_LOCAL:
			case r.Dst.IsSingleIP():
				out.addrs[r.Dst.Addr()] = true
			default:
				out.routes = append(out.routes, r.Dst)
			}
		}
	}
	return out, nil
}

// FromOthers lists the connections that the namespace forwards, and those that others opened to its own addresses, which it
// returns, too. Entries that change meanwhile may be missing.
func (c *Conntrack) FromOthers() (list []Connection, own *LocalAddrs, err error) {
	if own, err = c.localAddrs(); err != nil {
		return nil, nil, err
	}
	msgs, err := c.entries.Dump(netlink.Request{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | ctGet, Body: netlink.Buffer{0, 0, 0, 0}})
	if err != nil {
		return nil, nil, fmt.Errorf("list connections: %w", err)
	}
	list = make([]Connection, 0, len(msgs))
	parents := map[string]*Connection{} // by their original tuples
	for _, m := range msgs {
		if len(m) < 4 {
			continue
		}
		x := parseConnection(m[4:], parents)
		if src := x.Src.Addr(); src.IsValid() && x.Dst.Addr().IsValid() && !own.Has(src) && !src.IsLoopback() {
			list = append(list, x)
		}
	}
	if len(parents) > 0 {
		findParents(msgs, parents)
	}
	return list, own, nil
}

// parseConnection decodes an entry. It adds its parent, as far as the entry has it: the parent's destination is that before
// destination NAT.
func parseConnection(p []byte, parents map[string]*Connection) (x Connection) {
	var orig, reply, master []byte
	netlink.EachAttr(p, func(typ uint16, v []byte) {
		switch typ {
		case ctaTupleOrig:
			orig = v
		case ctaTupleReply:
			reply = v
		case ctaTupleMaster:
			master = v
		case ctaID:
			x.ID = netlink.Uint32BE(v)
		}
	})
	x.setTuples(orig, reply)
	if master != nil {
		if x.Parent = parents[string(master)]; x.Parent == nil {
			x.Parent = &Connection{}
			x.Parent.setTuples(master, nil)
			parents[string(master)] = x.Parent
		}
	}
	return x
}

// findParents completes the parents that still exist.
func findParents(msgs [][]byte, parents map[string]*Connection) {
	for _, m := range msgs {
		if len(m) < 4 {
			continue
		}
		orig := netlink.Attr(m[4:], ctaTupleOrig)
		if x := parents[string(orig)]; x != nil {
			x.setTuples(orig, netlink.Attr(m[4:], ctaTupleReply))
		}
	}
}

// setTuples sets the protocol and both ends. Without a reply tuple, there was no destination NAT.
func (x *Connection) setTuples(orig, reply []byte) {
	proto := netlink.Attr(orig, ctaTupleProto)
	x.Protocol = netlink.Uint8(netlink.Attr(proto, ctaProtoNum))
	x.Src = netip.AddrPortFrom(tupleAddr(orig, ctaIPv4Src, ctaIPv6Src), tuplePort(proto, ctaProtoSport))
	if reply == nil {
		x.Dst = netip.AddrPortFrom(tupleAddr(orig, ctaIPv4Dst, ctaIPv6Dst), tuplePort(proto, ctaProtoDport))
		return
	}
	x.Dst = netip.AddrPortFrom(tupleAddr(reply, ctaIPv4Src, ctaIPv6Src), tuplePort(netlink.Attr(reply, ctaTupleProto), ctaProtoSport))
}

// tuplePort returns a port of a tuple's protocol, or 0.
func tuplePort(proto []byte, typ uint16) uint16 {
	v := netlink.Attr(proto, typ)
	if len(v) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(v)
}
