package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// What there may be only one of, and what it is: comparable, as there are thousands.
type (
	routeKey struct {
		dst           netip.Prefix
		table, metric int
	}
	routeValue struct {
		via, src    netip.Addr
		index, mtu  int
		onlink      bool
		typ         byte
		hops        string
		scopeOfLink bool
	}
	neighKey struct {
		index int
		ip    netip.Addr
	}
	fdbKey struct {
		index int
		mac   string
	}
	fdbValue struct{ dst netip.Addr }
	addrKey  struct {
		index  int
		prefix netip.Prefix
	}
)

const metric6 = 1024 // what the kernel takes for none in IPv6

func keyOf(dst netip.Prefix, table, metric int) routeKey {
	if dst.Addr().Is6() && metric == 0 {
		metric = metric6
	}
	return routeKey{dst.Masked(), table, metric}
}

func (r *Route) value(index int) routeValue {
	v := routeValue{via: r.Via, src: r.Src, index: index, mtu: min(r.MTU, maxMTU), onlink: r.OnLink, typ: r.rtnType()}
	if len(r.Hops) > 0 {
		v.hops = fmt.Sprint(r.Hops)
	}
	if r.Type != Unicast {
		v.index = 0
	}
	return v
}

func (h *RouteInfo) value() routeValue {
	v := routeValue{via: h.Via, src: h.Src, index: h.Index, mtu: h.MTU, onlink: h.OnLink, typ: h.Type}
	if len(h.Hops) > 0 {
		v.hops, v.onlink = fmt.Sprint(h.Hops), false
	}
	if h.Type != unix.RTN_UNICAST {
		v.index = 0
	}
	return v
}

func (r *Reconciler) lookRoutes() error {
	r.routes = map[routeKey]routeValue{}
	for _, fam := range []byte{unix.AF_INET, unix.AF_INET6} {
		list, err := r.e.routes(r.side, fam, 0, r.owner.Protocol)
		if err != nil {
			return err
		}
		for i := range list {
			h := &list[i]
			r.routes[keyOf(h.Dst, h.Table, h.Metric)] = h.value()
		}
	}
	return nil
}

func (r *Reconciler) lookRules() error {
	r.rules = map[Rule]bool{}
	for _, fam := range []byte{unix.AF_INET, unix.AF_INET6} {
		list, err := r.e.Rules(r.side, fam)
		if err != nil {
			return err
		}
		for _, h := range list {
			if h.Protocol == r.owner.Protocol {
				r.rules[Rule{Priority: h.Priority, From: h.From, To: h.To, Table: h.Table, Proto: h.Protocol}] = true
			}
		}
	}
	return nil
}

// lookLinks lists addresses, neighbours and forwarding entries of the owner's links.
func (r *Reconciler) lookLinks() error {
	r.neighs, r.fdb, r.addrs = map[neighKey]string{}, map[fdbKey]fdbValue{}, map[addrKey]bool{}
	for _, l := range r.links {
		for _, fam := range []byte{unix.AF_INET, unix.AF_INET6} {
			list, err := r.e.permanent(r.side, fam, l.Index)
			if err != nil {
				return err
			}
			for ip, mac := range list {
				r.neighs[neighKey{l.Index, ip}] = mac
			}
		}
		if l.Kind == "vxlan" {
			list, err := r.e.forwarding(r.side, l.Index)
			if err != nil {
				return err
			}
			for mac, dst := range list {
				r.fdb[fdbKey{l.Index, mac}] = fdbValue{dst}
			}
		}
		list, err := r.e.addressesOf(r.side, l.Index)
		if err != nil {
			return err
		}
		for _, p := range list {
			r.addrs[addrKey{l.Index, p}] = true
		}
	}
	return nil
}

// permanent lists a link's permanent neighbours with their hardware addresses.
func (e *Engine) permanent(s Side, fam byte, index int) (map[netip.Addr]string, error) {
	b := netlink.Buffer{fam, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b.Uint32(unix.NDA_IFINDEX, uint32(index))
	msgs, err := e.dump(s, netlink.Request{Type: unix.RTM_GETNEIGH, Body: b})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	out := map[netip.Addr]string{}
	for _, m := range msgs {
		if len(m) >= unix.SizeofNdMsg && int(netlink.Uint32(m[4:])) == index && netlink.Uint16(m[8:])&unix.NUD_PERMANENT != 0 {
			p := m[unix.SizeofNdMsg:]
			out[netlink.Addr(netlink.Attr(p, unix.NDA_DST))] = hwaddr.Format(netlink.Attr(p, unix.NDA_LLADDR))
		}
	}
	return out, nil
}

// addressesOf lists a link's addresses, those of the link alone (fe80::) left out.
func (e *Engine) addressesOf(s Side, index int) (out []netip.Prefix, _ error) {
	have, err := e.addrInfos(s, index)
	for _, a := range have {
		if a.Scope != unix.RT_SCOPE_LINK {
			out = append(out, a.Prefix)
		}
	}
	return out, err
}

// step is a change that waits to be sent with others.
type step struct {
	o    Object
	req  netlink.Request
	then func() // when it succeeded
	what string // of a removal
}

// keyed makes the objects of which there are many so: what differs is sent by the
// hundred, in order, then what is too many is removed.
func (r *Reconciler) keyed(rep *Report, w wanted) {
	var puts []step
	keep := kept{map[routeKey]bool{}, map[Rule]bool{}, map[neighKey]bool{}, map[fdbKey]bool{}, map[addrKey]bool{}}
	for _, o := range w.keyed {
		s, err := r.put(o, &keep)
		if err != nil {
			rep.fail(o, err)
		} else if s.o != nil {
			puts = append(puts, s)
		}
	}
	r.send(rep, puts)
	if !r.NoRemove {
		r.send(rep, r.drops(&keep))
	}
}

// kept is what is wanted, by key.
type kept struct {
	routes map[routeKey]bool
	rules  map[Rule]bool
	neighs map[neighKey]bool
	fdb    map[fdbKey]bool
	addrs  map[addrKey]bool
}

// put is what makes an object so; no step if it is.
func (r *Reconciler) put(o Object, keep *kept) (step, error) {
	switch o := o.(type) {
	case *Route:
		return r.putRoute(o, keep)
	case *Rule:
		k := *o
		k.base, k.In, k.From, k.To, k.Proto = base{}, r.side, masked(o.From), masked(o.To), r.owner.Protocol
		keep.rules[k] = true
		if r.rules[k] {
			return step{}, nil
		}
		add := k
		return step{o: o, req: netlink.Request{Type: unix.RTM_NEWRULE, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: add.body()}, then: func() { r.rules[k] = true }}, nil
	}
	i, err := r.e.ifindex(r.side, o.on().name)
	if err != nil {
		return step{}, err
	}
	switch o := o.(type) {
	case *Neigh:
		k, mac := neighKey{i, o.IP}, o.MAC
		keep.neighs[k] = true
		if r.neighs[k] == mac {
			return step{}, nil
		}
		p := *o
		p.Proto = r.owner.Protocol
		return step{o: o, req: p.put(i), then: func() { r.neighs[k] = mac }}, nil
	case *FDB:
		k, v := fdbKey{i, o.MAC}, fdbValue{o.Dst}
		keep.fdb[k] = true
		if have, ok := r.fdb[k]; ok && have == v {
			return step{}, nil
		}
		return step{o: o, req: o.put(i), then: func() { r.fdb[k] = v }}, nil
	case *Addr:
		k := addrKey{i, o.Prefix}
		keep.addrs[k] = true
		if r.addrs[k] {
			return step{}, nil
		}
		return step{o: o, req: netlink.Request{Type: unix.RTM_NEWADDR, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: o.body(i)}, then: func() { r.addrs[k] = true }}, nil
	}
	return step{}, fmt.Errorf("no reconciler keeps a %s", o.kind())
}

func masked(p netip.Prefix) netip.Prefix {
	if !p.IsValid() {
		return p
	}
	return p.Masked()
}

// putRoute replaces a route of ours, and is refused where another's stands that is
// not to be taken over.
func (r *Reconciler) putRoute(o *Route, keep *kept) (step, error) {
	i, err := o.linkIndex(r.e)
	if err != nil {
		return step{}, err
	}
	k, v := keyOf(o.Dst, o.table(), o.Metric), o.value(i)
	keep.routes[k] = true
	have, ours := r.routes[k]
	if ours && have == v {
		return step{}, nil
	}
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	if ours || o.Takeover {
		flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	}
	p := *o
	p.Proto = r.owner.Protocol
	return step{o: o, req: netlink.Request{Type: unix.RTM_NEWROUTE, Flags: flags, Body: p.body(i)}, then: func() { r.routes[k] = v }}, nil
}

// perWrite is how many changes go in one write: their acknowledgements have to
// fit the socket's buffer where it could not be enlarged.
const perWrite = 200

func (r *Reconciler) send(rep *Report, steps []step) {
	for len(steps) > 0 {
		n := min(perWrite, len(steps))
		reqs := make([]netlink.Request, n)
		for i, s := range steps[:n] {
			reqs[i] = s.req
		}
		resp, err := r.e.doAll(r.side, reqs)
		if err != nil {
			r.known = false // it is not known what was done
			rep.Errors = append(rep.Errors, err)
			return
		}
		for i, s := range steps[:n] {
			r.answered(rep, s, resp[i].Err)
		}
		steps = steps[n:]
	}
}

func (r *Reconciler) answered(rep *Report, s step, err error) {
	switch {
	case s.o == nil && (err == nil || netlink.IsAbsent(err)):
		s.then()
		rep.removed(s.what)
	case s.o == nil:
		r.known = false
		rep.Errors = append(rep.Errors, fmt.Errorf("remove %s: %w", s.what, err))
	case err == nil:
		s.then()
		rep.applied(s.o)
	default:
		if errors.Is(err, unix.EEXIST) {
			err = fmt.Errorf("another's is in the way: %w", err)
		}
		r.known = false // what was remembered may be why
		rep.fail(s.o, err)
	}
}
