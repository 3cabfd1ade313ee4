package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// carried is what a link of the container loses when it is taken down, as it
// is when its master changes: the kernel's own messages, to be sent back.
type linkState struct {
	index  int
	routes [][]byte // of every table, but those that the kernel makes by itself
	addrs  [][]byte // IPv6; those of IPv4 stay
}

// rtaNextHopID is a route's next hop as an object of its own, linux/rtnetlink.h;
// the kernel deletes that with the link's state, and lists what it says besides.
const rtaNextHopID = 30

// carry notes what a link has.
func (e *Engine) saveLinkState(index int) (c linkState, err error) {
	c.index = index
	for _, fam := range []byte{IPv4, IPv6} {
		b := RouteMessage(fam, 0, 0, 0, 0)
		b[4], b[5], b[7] = 0, 0, 0
		msgs, err := e.Dump(Container, netlink.Request{Type: unix.RTM_GETROUTE, Body: b})
		if err != nil {
			return c, fmt.Errorf("list routes: %w", err)
		}
		for _, m := range msgs {
			if len(m) >= unix.SizeofRtMsg && slices.Contains(hops(m), index) && isOurs(m) {
				c.routes = append(c.routes, m)
			}
		}
	}
	msgs, err := e.Dump(Container, netlink.Request{Type: unix.RTM_GETADDR, Body: netlink.Buffer{unix.AF_INET6, 0, 0, 0, 0, 0, 0, 0}})
	if err != nil {
		return c, fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		if len(m) >= unix.SizeofIfAddrmsg && int(netlink.Uint32(m[4:])) == index && m[3] != unix.RT_SCOPE_LINK {
			c.addrs = append(c.addrs, m)
		}
	}
	return c, nil
}

// isOurs tells whether a route has to be put back: the kernel makes those to
// its own addresses and subnets again, and a router says again what it said.
func isOurs(m []byte) bool {
	proto, typ := m[5], m[7]
	return proto != unix.RTPROT_KERNEL && proto != unix.RTPROT_RA && typ == unix.RTN_UNICAST
}

// hops are the links by which a route leaves.
func hops(m []byte) (out []int) {
	p := m[unix.SizeofRtMsg:]
	if oif := netlink.Attr(p, unix.RTA_OIF); oif != nil {
		out = append(out, int(netlink.Uint32(oif)))
	}
	eachHop(netlink.Attr(p, unix.RTA_MULTIPATH), func(hop []byte) { out = append(out, int(netlink.Uint32(hop[4:]))) })
	return out
}

// eachHop walks the struct rtnexthops of a route with several, and tells whether
// the list was whole.
func eachHop(p []byte, f func(hop []byte)) bool {
	for len(p) >= unix.SizeofRtNexthop {
		n := int(netlink.Uint16(p))
		if n < unix.SizeofRtNexthop || n > len(p) {
			return false
		}
		f(p[:n])
		p = p[min((n+3)&^3, len(p)):]
	}
	return true
}

// moveAnd sends what takes the link down, and with it, in the same write, what puts
// back addresses and routes, those of one table into another: no kill comes between. A
// route by a gateway comes after the one to the gateway.
func (e *Engine) changeAndRestore(move netlink.Request, c linkState, from, to int) error {
	byGateway := func(m []byte) int {
		return len(netlink.Attr(m[unix.SizeofRtMsg:], unix.RTA_GATEWAY)) + len(netlink.Attr(m[unix.SizeofRtMsg:], unix.RTA_MULTIPATH))
	}
	slices.SortStableFunc(c.routes, func(a, b []byte) int { return min(byGateway(a), 1) - min(byGateway(b), 1) })
	reqs, shared := []netlink.Request{move}, [][]byte{}
	for _, m := range c.addrs {
		reqs = append(reqs, netlink.Request{Type: unix.RTM_NEWADDR, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: address6(m)})
	}
	for _, m := range c.routes {
		if slices.ContainsFunc(hops(m), func(i int) bool { return i != c.index }) {
			shared = append(shared, m)
			continue
		}
		table := ParseRoute(m).Table
		if table == from {
			table = to
		}
		reqs = append(reqs, netlink.Request{Type: unix.RTM_NEWROUTE, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: route(m, table, nil)})
	}
	resp, err := e.Requests(Container, reqs)
	if err != nil {
		return err
	}
	if resp[0].Err != nil {
		return errors.Join(resp[0].Err, e.undoRestore(reqs[1:], resp[1:]))
	}
	for _, m := range shared {
		e.restoreNextHops(c, m, ParseRoute(m).Table)
	}
	var errs []error
	for i, r := range resp[1:] {
		if r.Err != nil && !errors.Is(r.Err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("put back %s: %w", describeRequest(reqs[i+1]), r.Err))
		}
	}
	return errors.Join(errs...)
}

// takeBack removes what was put back although the link had not lost it.
func (e *Engine) undoRestore(reqs []netlink.Request, resp []netlink.Response) error {
	var errs []error
	for i, r := range reqs {
		if resp[i].Err == nil && r.Type == unix.RTM_NEWROUTE {
			_, err := e.Request(Container, netlink.Request{Type: unix.RTM_DELROUTE, Flags: 0, Body: r.Body})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func describeRequest(r netlink.Request) string {
	if r.Type == unix.RTM_NEWADDR {
		return "address " + netlink.Addr(netlink.Attr(r.Body[unix.SizeofIfAddrmsg:], unix.IFA_ADDRESS)).String()
	}
	rt := ParseRoute(r.Body)
	return fmt.Sprintf("route %s via %s in table %d", rt.Dst, rt.Via, rt.Table)
}

// mend gives a route with hops by several links, which stayed, those by this
// link again. Where a hop's subnet is in another table now, the kernel has to
// take the hop on trust; what it does not take leaves the route as it is.
func (e *Engine) restoreNextHops(c linkState, m []byte, table int) {
	asItWas := func(hop []byte) {
		if int(netlink.Uint32(hop[4:])) == c.index {
			hop[2] = 0
		}
	}
	onTrust := func(hop []byte) { hop[2] |= unix.RTNH_F_ONLINK }
	for _, each := range []func([]byte){asItWas, onTrust} {
		body := route(m, table, each)
		if _, err := e.Request(Container, netlink.Request{Type: unix.RTM_NEWROUTE, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: body}); err == nil {
			return
		}
	}
}

// route is a listed route as it can be asked for, in a table; each changes its
// hops, if it has several.
func route(m []byte, table int, each func(hop []byte)) netlink.Buffer {
	const keep = unix.RTNH_F_ONLINK // what else a listed route says of its state is no wish
	head := slices.Clone(m[:unix.SizeofRtMsg])
	head[4] = unix.RT_TABLE_COMPAT
	if table < 256 {
		head[4] = byte(table)
	}
	binary.NativeEndian.PutUint32(head[8:], netlink.Uint32(head[8:])&keep)
	out := netlink.Buffer(head)
	netlink.EachAttr(m[unix.SizeofRtMsg:], func(typ uint16, v []byte) {
		switch typ {
		case unix.RTA_TABLE, unix.RTA_CACHEINFO, rtaNextHopID:
		case unix.RTA_MULTIPATH:
			v = slices.Clone(v)
			eachHop(v, func(hop []byte) {
				hop[2] &= keep
				if each != nil {
					each(hop)
				}
			})
			out.Bytes(typ, v)
		case unix.RTA_METRICS:
			out.Bytes(typ|unix.NLA_F_NESTED, v)
		default:
			out.Bytes(typ, v)
		}
	})
	out.Uint32(unix.RTA_TABLE, uint32(table))
	return out
}

// address6 is a listed address as it can be asked for: known to be nobody else's.
func address6(m []byte) netlink.Buffer {
	out := netlink.Buffer(slices.Clone(m[:unix.SizeofIfAddrmsg]))
	flags := uint32(unix.IFA_F_NODAD)
	netlink.EachAttr(m[unix.SizeofIfAddrmsg:], func(typ uint16, v []byte) {
		if typ == unix.IFA_FLAGS {
			flags |= netlink.Uint32(v)
		} else {
			out.Bytes(typ, v)
		}
	})
	out.Uint32(unix.IFA_FLAGS, flags&^uint32(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED))
	return out
}
