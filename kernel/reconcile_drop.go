package kernel

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// drops are the removals of what is not wanted: routes first, so that nothing is
// sent where its neighbour is gone.
func (r *Reconciler) drops(keep *kept) (out []step) {
	for k, v := range r.routes {
		if !keep.routes[k] {
			out = append(out, step{req: netlink.Request{Type: unix.RTM_DELROUTE, Flags: 0, Body: routeBody(k, v, r.owner.Protocol)}, what: "ip route " + k.dst.String(), then: func() { delete(r.routes, k) }})
		}
	}
	for k := range r.rules {
		if !keep.rules[k] {
			out = append(out, step{req: netlink.Request{Type: unix.RTM_DELRULE, Flags: 0, Body: k.body()}, what: k.String(), then: func() { delete(r.rules, k) }})
		}
	}
	for k := range r.fdb {
		if !keep.fdb[k] && r.hasLink(k.index) {
			f := FDB{MAC: k.mac, Dst: r.fdb[k].dst}
			out = append(out, step{req: netlink.Request{Type: unix.RTM_DELNEIGH, Flags: 0, Body: f.body(k.index)}, what: "bridge fdb " + k.mac, then: func() { delete(r.fdb, k) }})
		}
	}
	for k := range r.neighs {
		if !keep.neighs[k] && r.hasLink(k.index) {
			n := Neigh{IP: k.ip}
			out = append(out, step{req: netlink.Request{Type: unix.RTM_DELNEIGH, Flags: 0, Body: n.ndmsg(k.index, 0)}, what: "ip neigh " + k.ip.String(), then: func() { delete(r.neighs, k) }})
		}
	}
	for k := range r.addrs {
		if !keep.addrs[k] && r.hasLink(k.index) {
			a := Addr{Prefix: k.prefix}
			out = append(out, step{req: netlink.Request{Type: unix.RTM_DELADDR, Flags: 0, Body: a.body(k.index)}, what: fmt.Sprintf("ip addr %s", k.prefix), then: func() { delete(r.addrs, k) }})
		}
	}
	return out
}

// hasLink tells whether a number is still that of a link of the owner's: what was
// on one that is gone went with it.
func (r *Reconciler) hasLink(index int) bool {
	for _, l := range r.links {
		if l.Index == index {
			return true
		}
	}
	return false
}

// routeBody names a route by what tells it from others.
func routeBody(k routeKey, v routeValue, protocol byte) netlink.Buffer {
	b := rtmsg(netlink.AddrFamily(k.dst.Addr()), k.dst.Bits(), k.table, unix.RT_SCOPE_NOWHERE, 0)
	b[5], b[7] = protocol, v.typ
	b.Addr(unix.RTA_DST, k.dst.Addr())
	b.Uint32(unix.RTA_TABLE, uint32(k.table))
	b.Uint32(unix.RTA_PRIORITY, uint32(k.metric))
	if v.via.IsValid() && v.hops == "" {
		b.Addr(unix.RTA_GATEWAY, v.via)
	}
	if v.index != 0 && v.hops == "" {
		b.Uint32(unix.RTA_OIF, uint32(v.index))
	}
	return b
}

// LinkOf finds the host's link that has an address.
func (e *Engine) LinkOf(ip netip.Addr) (*LinkInfo, error) {
	all, err := e.addrInfos(Host, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Prefix.Addr() == ip && a.Scope != unix.RT_SCOPE_LINK {
			return e.LinkByIndex(Host, a.Index)
		}
	}
	return nil, fmt.Errorf("no link has the address %s", ip)
}

// AddressesOf lists the addresses of a link by name, those of the link alone left out.
func (e *Engine) AddressesOf(name string) (*LinkInfo, []netip.Prefix, error) {
	l, err := e.Link(Host, name)
	if err != nil {
		return nil, nil, err
	}
	list, err := e.addressesOf(Host, l.Index)
	return l, list, err
}
