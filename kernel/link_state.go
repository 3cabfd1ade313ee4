package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// linkState contains the state that a container's link loses when it is taken down, for example because its master
// changes. It consists of the kernel's own messages, to be sent back.
type linkState struct {
	index  int
	routes [][]byte // of every table, except the routes that the kernel adds itself
	addrs  [][]byte // IPv6 only; the link keeps IPv4 addresses
}

// rtaNextHopID is RTA_NH_ID of linux/rtnetlink.h, the next hop as an object of its own. The kernel deletes that object
// with the link's state, and also lists its content in the route.
const rtaNextHopID = 30

// saveLinkState reads what a link would lose.
func (e *Engine) saveLinkState(index int) (c linkState, err error) {
	c.index = index
	for _, fam := range []byte{IPv4, IPv6} {
		msgs, err := e.Dump(Container, routesRequest(fam, 0, 0, 0))
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

// isOurs reports whether a route must be restored. The kernel adds routes to its own addresses and subnets again, and a
// router repeats its advertisement.
func isOurs(m []byte) bool {
	proto, typ := m[5], m[7]
	return proto != unix.RTPROT_KERNEL && proto != unix.RTPROT_RA && typ == unix.RTN_UNICAST
}

// hops returns the indexes of the links by which a route leaves.
func hops(m []byte) (out []int) {
	p := m[unix.SizeofRtMsg:]
	if oif := netlink.Attr(p, unix.RTA_OIF); oif != nil {
		out = append(out, int(netlink.Uint32(oif)))
	}
	eachHop(netlink.Attr(p, unix.RTA_MULTIPATH), func(hop []byte) { out = append(out, int(netlink.Uint32(hop[4:]))) })
	return out
}

// eachHop calls f for each struct rtnexthop of a multipath route, and reports whether the list was well-formed.
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

// changeAndRestore sends a request that takes the link down and, in the same write, the requests that restore its
// addresses and routes, so no kill comes between. Routes of the table from move to the table to. A route with a gateway
// comes after the route to the gateway.
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
			errs = append(errs, fmt.Errorf("restore %s: %w", describeRequest(reqs[i+1]), r.Err))
		}
	}
	return errors.Join(errs...)
}

// undoRestore removes the routes that were added although the link had not lost its own.
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
	via := ""
	if rt.Via.IsValid() {
		via = " via " + rt.Via.String()
	}
	return fmt.Sprintf("route %s%s in table %d", rt.Dst, via, rt.Table)
}

// restoreNextHops gives a multipath route that also uses other links its next hops on this link back. If the subnet of
// a next hop is in another table now, the hop needs the onlink flag. A route that the kernel still rejects stays as it
// is.
func (e *Engine) restoreNextHops(c linkState, m []byte, table int) {
	withoutFlags := func(hop []byte) {
		if int(netlink.Uint32(hop[4:])) == c.index {
			hop[2] = 0
		}
	}
	onLink := func(hop []byte) { hop[2] |= unix.RTNH_F_ONLINK }
	for _, each := range []func([]byte){withoutFlags, onLink} {
		body := route(m, table, each)
		if _, err := e.Request(Container, netlink.Request{Type: unix.RTM_NEWROUTE, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: body}); err == nil {
			return
		}
	}
}

// route turns a listed route into the body of a request, for a table. each, if not nil, changes the next hops of a
// multipath route.
func route(m []byte, table int, each func(hop []byte)) netlink.Buffer {
	const keep = unix.RTNH_F_ONLINK // the other flags of a listed route are state, not configuration
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

// address6 turns a listed address into the body of a request, without duplicate address detection.
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
