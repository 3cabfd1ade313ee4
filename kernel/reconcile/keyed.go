package reconcile

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Keys and values of the objects of which there are thousands. They are comparable.
type (
	routeKey struct {
		dst           netip.Prefix
		table, metric int
	}
	routeValue struct {
		via, src   netip.Addr
		index, mtu int
		onlink     bool
		typ        byte
		hops       string
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

const defaultMetric6 = 1024 // the metric that the kernel gives an IPv6 route without one

func routeKeyOf(dst netip.Prefix, table, metric int) routeKey {
	if dst.Addr().Is6() && metric == 0 {
		metric = defaultMetric6
	}
	return routeKey{dst.Masked(), table, metric}
}

func wantedRoute(r *kernel.Route, index int) routeValue {
	v := routeValue{via: r.Via, src: r.Src, index: index, mtu: min(r.MTU, kernel.MaxMTU), onlink: r.OnLink, typ: r.KernelType()}
	if len(r.Hops) > 0 {
		v.hops = fmt.Sprint(r.Hops)
	}
	if r.Type != kernel.Unicast {
		v.index = 0
	}
	return v
}

func listedRoute(h *kernel.RouteInfo) routeValue {
	v := routeValue{via: h.Via, src: h.Src, index: h.Index, mtu: h.MTU, onlink: h.OnLink, typ: h.Type}
	if len(h.Hops) > 0 {
		v.hops, v.onlink = fmt.Sprint(h.Hops), false
	}
	if h.Type != unix.RTN_UNICAST {
		v.index = 0
	}
	return v
}

func (r *Reconciler) listRoutes() error {
	r.routes = map[routeKey]routeValue{}
	for _, fam := range []byte{unix.AF_INET, unix.AF_INET6} {
		list, err := r.e.RoutesByProtocol(r.side, fam, 0, r.owner.Protocol)
		if err != nil {
			return err
		}
		for i := range list {
			h := &list[i]
			r.routes[routeKeyOf(h.Dst, h.Table, h.Metric)] = listedRoute(h)
		}
	}
	return nil
}

func (r *Reconciler) listRules() error {
	r.rules = map[kernel.Rule]bool{}
	for _, fam := range []byte{unix.AF_INET, unix.AF_INET6} {
		list, err := r.e.Rules(r.side, fam)
		if err != nil {
			return err
		}
		for _, h := range list {
			if h.Protocol == r.owner.Protocol {
				r.rules[kernel.Rule{Priority: h.Priority, From: h.From, To: h.To, Table: h.Table, Proto: h.Protocol}] = true
			}
		}
	}
	return nil
}

// listOnLinks lists the addresses, neighbours and forwarding entries of the owner's links.
func (r *Reconciler) listOnLinks() error {
	r.neighs, r.fdb, r.addrs = map[neighKey]string{}, map[fdbKey]fdbValue{}, map[addrKey]bool{}
	for _, l := range r.links {
		for _, fam := range []byte{unix.AF_INET, unix.AF_INET6} {
			list, err := r.e.PermanentNeighs(r.side, fam, l.Index)
			if err != nil {
				return err
			}
			for ip, mac := range list {
				r.neighs[neighKey{l.Index, ip}] = mac
			}
		}
		if l.Kind == "vxlan" {
			list, err := r.e.ForwardingEntries(r.side, l.Index)
			if err != nil {
				return err
			}
			for mac, dst := range list {
				r.fdb[fdbKey{l.Index, mac}] = fdbValue{dst}
			}
		}
		list, err := r.e.GlobalAddrs(r.side, l.Index)
		if err != nil {
			return err
		}
		for _, p := range list {
			r.addrs[addrKey{l.Index, p}] = true
		}
	}
	return nil
}

// change is a request that is sent together with others.
type change struct {
	o    kernel.Object
	req  netlink.Request
	then func() // called on success
	what string // of a removal: the text for the report
}

// updateKeyed creates and changes the keyed objects that differ, in order and hundreds per write. Then it removes those
// that are not wanted.
func (r *Reconciler) updateKeyed(rep *Report, w partition) {
	var puts []change
	keep := wantedKeys{map[routeKey]bool{}, map[kernel.Rule]bool{}, map[neighKey]bool{}, map[fdbKey]bool{}, map[addrKey]bool{}}
	for _, o := range w.keyed {
		s, err := r.change(o, &keep)
		if err != nil {
			rep.fail(o, err)
		} else if s.o != nil {
			puts = append(puts, s)
		}
	}
	r.send(rep, puts)
	if !r.NoRemove {
		r.send(rep, r.removals(&keep))
	}
}

// wantedKeys are the keys of the wanted objects.
type wantedKeys struct {
	routes map[routeKey]bool
	rules  map[kernel.Rule]bool
	neighs map[neighKey]bool
	fdb    map[fdbKey]bool
	addrs  map[addrKey]bool
}

// change returns the request that creates or changes an object, or none if it does not differ.
func (r *Reconciler) change(o kernel.Object, keep *wantedKeys) (change, error) {
	switch o := o.(type) {
	case *kernel.Route:
		return r.changeRoute(o, keep)
	case *kernel.Rule:
		k := *o
		k.In, k.From, k.To, k.Proto = r.side, masked(o.From), masked(o.To), r.owner.Protocol
		keep.rules[k] = true
		if r.rules[k] {
			return change{}, nil
		}
		add := k
		return change{o: o, req: netlink.Request{Type: unix.RTM_NEWRULE, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: add.Message()}, then: func() { r.rules[k] = true }}, nil
	}
	i, err := r.e.LinkIndex(r.side, kernel.LinkNameOf(o))
	if err != nil {
		return change{}, err
	}
	switch o := o.(type) {
	case *kernel.Neigh:
		k, mac := neighKey{i, o.IP}, o.MAC
		keep.neighs[k] = true
		if r.neighs[k] == mac {
			return change{}, nil
		}
		p := *o
		p.Proto = r.owner.Protocol
		return change{o: o, req: p.AddRequest(i), then: func() { r.neighs[k] = mac }}, nil
	case *kernel.FDB:
		k, v := fdbKey{i, o.MAC}, fdbValue{o.Dst}
		keep.fdb[k] = true
		if have, ok := r.fdb[k]; ok && have == v {
			return change{}, nil
		}
		return change{o: o, req: o.AddRequest(i), then: func() { r.fdb[k] = v }}, nil
	case *kernel.Addr:
		k := addrKey{i, o.Prefix}
		keep.addrs[k] = true
		if r.addrs[k] {
			return change{}, nil
		}
		return change{o: o, req: netlink.Request{Type: unix.RTM_NEWADDR, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: o.Message(i)}, then: func() { r.addrs[k] = true }}, nil
	}
	return change{}, fmt.Errorf("an object of kind %s cannot be reconciled", kernel.Kind(o))
}

func masked(p netip.Prefix) netip.Prefix {
	if !p.IsValid() {
		return p
	}
	return p.Masked()
}

// changeRoute replaces a route of the owner. A third-party route in its place makes the request fail, unless the route
// says Takeover.
func (r *Reconciler) changeRoute(o *kernel.Route, keep *wantedKeys) (change, error) {
	i, err := o.LinkIndex(r.e)
	if err != nil {
		return change{}, err
	}
	k, v := routeKeyOf(o.Dst, o.RoutingTable(), o.Metric), wantedRoute(o, i)
	keep.routes[k] = true
	have, ours := r.routes[k]
	if ours && have == v {
		return change{}, nil
	}
	flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	if ours || o.Takeover {
		flags = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	}
	p := *o
	p.Proto = r.owner.Protocol
	return change{o: o, req: netlink.Request{Type: unix.RTM_NEWROUTE, Flags: flags, Body: p.Message(i)}, then: func() { r.routes[k] = v }}, nil
}

// changesPerWrite is the number of changes in one write. Their acknowledgements must fit the socket's buffer, which the
// kernel may have refused to enlarge.
const changesPerWrite = 200

func (r *Reconciler) send(rep *Report, steps []change) {
	for len(steps) > 0 {
		n := min(changesPerWrite, len(steps))
		reqs := make([]netlink.Request, n)
		for i, s := range steps[:n] {
			reqs[i] = s.req
		}
		resp, err := r.e.Requests(r.side, reqs)
		if err != nil {
			r.known = false // the reply is lost, so the state is unknown
			rep.Errors = append(rep.Errors, err)
			return
		}
		for i, s := range steps[:n] {
			r.reply(rep, s, resp[i].Err)
		}
		steps = steps[n:]
	}
}

func (r *Reconciler) reply(rep *Report, s change, err error) {
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
			err = fmt.Errorf("a third-party object is in the way: %w", err)
		}
		if _, route := s.o.(*kernel.Route); !route || !IsUnusableHop(err) {
			r.known = false // the remembered state may be wrong
		}
		rep.fail(s.o, err)
	}
}

// IsUnusableHop reports whether the kernel rejected a route because of its next hop (net/ipv4/fib_semantics.c,
// net/ipv6/route.c). Then nothing contradicts the remembered state.
func IsUnusableHop(err error) bool {
	return errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EINVAL)
}
