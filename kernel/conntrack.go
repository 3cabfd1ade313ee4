package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// ConntrackFlows are the connection-tracking entries of a UDP host port. Creating and removing the object both delete
// entries, so that a sender that never pauses reaches the new target, or none. Entries of other machines' ports with
// that number stay.
type ConntrackFlows struct {
	base
	HostIP netip.Addr `json:",omitzero"` // unspecified: every address of the host, of the target's family
	Port   uint16     `json:",omitzero"` // host port
	Target netip.Addr `json:",omitzero"` // address of the container
	// Conditional says that the mapping has conditions: a flow to the host itself may be of a client that they exclude.
	Conditional bool `json:",omitzero"`
}

const ( // linux/netfilter/nfnetlink_conntrack.h
	ctDelete = 2
	ctGet    = 1

	ctaTupleOrig   = 1
	ctaTupleReply  = 2
	ctaID          = 12
	ctaTupleMaster = 14
	ctaFilter      = 25

	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaIPv4Src    = 1
	ctaIPv4Dst    = 2
	ctaIPv6Src    = 3
	ctaIPv6Dst    = 4
	ctaProtoNum   = 1
	ctaProtoSport = 2
	ctaProtoDport = 3

	ctaFilterOrig  = 1
	ctaFilterReply = 2
	filterIPSrc    = 1 << 0
	filterIPDst    = 1 << 1
	filterProtoNum = 1 << 3
	filterDport    = 1 << 5
)

func (f *ConntrackFlows) kind() string { return "flows" }
func (f *ConntrackFlows) Side() Side   { return Host }
func (f *ConntrackFlows) Shared() bool { return false }

func (f *ConntrackFlows) String() string {
	s := fmt.Sprintf("conntrack -D -p udp --orig-port-dst %d --reply-src %s", f.Port, f.Target)
	if f.HostIP.IsValid() && !f.HostIP.IsUnspecified() {
		s += " --orig-dst " + f.HostIP.String()
	}
	return s
}

// ensure deletes the entries that lead to a previous target, or to the host itself. The port mapping must exist first:
// otherwise a packet creates such an entry again.
func (f *ConntrackFlows) ensure(e *Engine) error {
	e.later = append(e.later, later{f, func() error { return f.endFormer(e) }})
	return nil
}

func (f *ConntrackFlows) endFormer(e *Engine) error {
	filter := f.filter()
	if filter.dst.IsValid() {
		return e.endFlows(filter)
	}
	local, err := e.localAddrs(filter.family)
	if err != nil {
		return err
	}
	return e.endListed(filter, func(entry []byte) bool { return f.isTo(local, entry) })
}

// filter selects the entries of the port. Without a host address it also selects those of other machines' ports.
func (f *ConntrackFlows) filter() flowFilter {
	filter := flowFilter{port: f.Port, family: netlink.AddrFamily(f.Target)}
	if f.HostIP.IsValid() && !f.HostIP.IsUnspecified() {
		filter.dst = f.HostIP
	}
	return filter
}

// diff reports flows that still go to a previous target, or to the host itself.
func (f *ConntrackFlows) diff(e *Engine) ([]string, error) {
	filter := f.filter()
	local, err := e.localAddrs(filter.family)
	if err != nil {
		return nil, err
	}
	msgs, err := e.listFlows(filter)
	if err != nil {
		return nil, err
	}
	var others []netip.Addr
	for _, m := range msgs {
		if to := f.otherTarget(m[4:], local); to.IsValid() && !(f.Conditional && slices.Contains(local, to)) {
			others = append(others, to)
		}
	}
	if len(others) == 0 {
		return nil, nil
	}
	own, err := e.containerAddrs() // another network of the container may have the port
	if err != nil {
		return nil, err
	}
	stale := len(slices.DeleteFunc(others, func(a netip.Addr) bool { return slices.Contains(own, a) }))
	if stale == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("%d flows go to another target", stale)}, nil
}

// otherTarget returns where a flow to the port at a local address goes, if that is not the target.
func (f *ConntrackFlows) otherTarget(entry []byte, local []netip.Addr) netip.Addr {
	if !f.isTo(local, entry) {
		return netip.Addr{}
	}
	if to := tupleAddr(netlink.Attr(entry, ctaTupleReply), ctaIPv4Src, ctaIPv6Src); to != f.Target {
		return to
	}
	return netip.Addr{}
}

// isTo reports whether a flow goes to the port at a local address.
func (f *ConntrackFlows) isTo(local []netip.Addr, entry []byte) bool {
	orig := netlink.Attr(entry, ctaTupleOrig)
	proto := netlink.Attr(orig, ctaTupleProto)
	return netlink.Uint8(netlink.Attr(proto, ctaProtoNum)) == unix.IPPROTO_UDP && tuplePort(proto, ctaProtoDport) == f.Port &&
		slices.Contains(local, tupleAddr(orig, ctaIPv4Dst, ctaIPv6Dst))
}

// tupleAddr returns an address of a tuple.
func tupleAddr(tuple []byte, v4, v6 uint16) netip.Addr {
	ip := netlink.Attr(tuple, ctaTupleIP)
	if a := netlink.Addr(netlink.Attr(ip, v4)); a.IsValid() {
		return a
	}
	return netlink.Addr(netlink.Attr(ip, v6))
}

func (f *ConntrackFlows) restore(e *Engine) error { return f.endFormer(e) }

// remove deletes the entries that lead to the target, after the mapping is gone.
func (f *ConntrackFlows) remove(e *Engine) error {
	e.later = append(e.later, later{f, func() error {
		return e.endFlows(flowFilter{replySrc: f.Target, port: f.Port, family: netlink.AddrFamily(f.Target)})
	}})
	return nil
}

// containerAddrs lists the addresses of the container, if there is one.
func (e *Engine) containerAddrs() (out []netip.Addr, _ error) {
	if e.ns[Container] == nil {
		return nil, nil
	}
	have, err := readOnce(e, "addresses of the container", func() ([]AddrInfo, error) { return e.AddrInfos(Container, 0) })
	for _, a := range have {
		out = append(out, a.Prefix.Addr())
	}
	return out, err
}

// localAddrs lists the host's addresses of a family.
func (e *Engine) localAddrs(fam byte) ([]netip.Addr, error) {
	msgs, err := e.Dump(Host, addrRequest(fam))
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	return distinctAddrs(msgs), nil
}

// addrRequest asks for all addresses of a family, 0 for both.
func addrRequest(fam byte) netlink.Request {
	return netlink.Request{Type: unix.RTM_GETADDR, Body: netlink.Buffer{fam, 0, 0, 0, 0, 0, 0, 0}}
}

// distinctAddrs returns the addresses of the reply to addrRequest.
func distinctAddrs(msgs [][]byte) (out []netip.Addr) {
	seen := map[netip.Addr]bool{}
	for _, m := range msgs {
		if len(m) < unix.SizeofIfAddrmsg {
			continue
		}
		a := netlink.LocalAddr(m)
		if !seen[a] {
			seen[a] = true
			out = append(out, a)
		}
	}
	return out
}

type flowFilter struct {
	family   byte
	port     uint16
	dst      netip.Addr // of the original direction
	replySrc netip.Addr
}

func (f flowFilter) body() netlink.Buffer {
	b := netlink.Buffer{f.family, 0, 0, 0}
	orig := uint32(filterProtoNum | filterDport)
	b.Nest(ctaTupleOrig, func(n *netlink.Buffer) {
		if f.dst.IsValid() {
			orig |= filterIPDst
			n.Nest(ctaTupleIP, func(n *netlink.Buffer) { n.Addr(pick(f.dst, ctaIPv4Dst, ctaIPv6Dst), f.dst) })
		}
		n.Nest(ctaTupleProto, func(n *netlink.Buffer) {
			n.Uint8(ctaProtoNum, unix.IPPROTO_UDP)
			n.Uint16BE(ctaProtoDport, f.port)
		})
	})
	if f.replySrc.IsValid() {
		b.Nest(ctaTupleReply, func(n *netlink.Buffer) {
			n.Nest(ctaTupleIP, func(n *netlink.Buffer) { n.Addr(pick(f.replySrc, ctaIPv4Src, ctaIPv6Src), f.replySrc) })
		})
	}
	b.Nest(ctaFilter, func(n *netlink.Buffer) {
		n.Uint32(ctaFilterOrig, orig)
		if f.replySrc.IsValid() {
			n.Uint32(ctaFilterReply, filterIPSrc)
		}
	})
	return b
}

func pick(a netip.Addr, v4, v6 uint16) uint16 {
	if a.Is4() {
		return v4
	}
	return v6
}

const ctSubsystem = unix.NFNL_SUBSYS_CTNETLINK << 8

// listFlows lists entries by a filter (kernel 5.9). Without connection tracking, or its netlink interface, there are none.
func (e *Engine) listFlows(f flowFilter) ([][]byte, error) {
	c, err := e.Netfilter()
	if lacksSubsystem(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	msgs, err := c.Dump(netlink.Request{Type: ctSubsystem | ctGet, Body: f.body()})
	if lacksSubsystem(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list flows of UDP port %d: %w", f.port, err)
	}
	return slices.DeleteFunc(msgs, func(m []byte) bool { return len(m) < 4 }), nil
}

// endFlows deletes entries by a filter. That is one message since kernel 6.12. Before, it deletes one by one.
func (e *Engine) endFlows(f flowFilter) error {
	c, err := e.Netfilter()
	if lacksSubsystem(err) {
		return nil
	}
	if err != nil {
		return err
	}
	resp, err := c.Do([]netlink.Request{{Type: ctSubsystem | ctDelete, Flags: unix.NLM_F_ACK, Body: f.body()}})
	if err != nil {
		return err
	}
	if err = resp[0].Err; err == nil {
		return nil
	}
	if !errors.Is(err, unix.EINVAL) && !netlink.IsAbsent(err) {
		return fmt.Errorf("end flows of UDP port %d: %w", f.port, err)
	}
	return e.endListed(f, func([]byte) bool { return true })
}

// endListed deletes those entries of a filter that match, one by one.
func (e *Engine) endListed(f flowFilter, match func(entry []byte) bool) error {
	msgs, err := e.listFlows(f)
	errs := []error{err}
	for _, m := range msgs {
		if !match(m[4:]) {
			continue
		}
		b := netlink.Buffer{f.family, 0, 0, 0}
		b.Bytes(ctaTupleOrig|unix.NLA_F_NESTED, netlink.Attr(m[4:], ctaTupleOrig))
		resp, err := e.nf.Do([]netlink.Request{{Type: ctSubsystem | ctDelete, Flags: unix.NLM_F_ACK, Body: b}})
		if err == nil && !netlink.IsAbsent(resp[0].Err) {
			err = resp[0].Err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
