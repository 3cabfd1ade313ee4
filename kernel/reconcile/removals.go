package reconcile

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// removals returns the requests that remove unwanted objects. Routes come first, so that no packet goes to a next hop
// whose neighbour entry is gone.
func (r *Reconciler) removals(keep *wantedKeys) (out []change) {
	for k, v := range r.routes {
		if !keep.routes[k] {
			out = append(out, change{req: netlink.Request{Type: unix.RTM_DELROUTE, Flags: 0, Body: routeBody(k, v, r.owner.Protocol)}, what: "ip route " + k.dst.String(), then: func() { delete(r.routes, k) }})
		}
	}
	for k := range r.rules {
		if !keep.rules[k] {
			out = append(out, change{req: netlink.Request{Type: unix.RTM_DELRULE, Flags: 0, Body: k.Message()}, what: k.String(), then: func() { delete(r.rules, k) }})
		}
	}
	for k := range r.fdb {
		if !keep.fdb[k] && r.hasLink(k.index) {
			f := kernel.FDB{MAC: k.mac, Dst: r.fdb[k].dst}
			out = append(out, change{req: netlink.Request{Type: unix.RTM_DELNEIGH, Flags: 0, Body: f.Message(k.index)}, what: "bridge fdb " + k.mac, then: func() { delete(r.fdb, k) }})
		}
	}
	for k := range r.neighs {
		if !keep.neighs[k] && r.hasLink(k.index) {
			n := kernel.Neigh{IP: k.ip}
			out = append(out, change{req: netlink.Request{Type: unix.RTM_DELNEIGH, Flags: 0, Body: n.Message(k.index, 0)}, what: "ip neigh " + k.ip.String(), then: func() { delete(r.neighs, k) }})
		}
	}
	for k := range r.addrs {
		if !keep.addrs[k] && r.hasLink(k.index) {
			a := kernel.Addr{Prefix: k.prefix}
			out = append(out, change{req: netlink.Request{Type: unix.RTM_DELADDR, Flags: 0, Body: a.Message(k.index)}, what: fmt.Sprintf("ip addr %s", k.prefix), then: func() { delete(r.addrs, k) }})
		}
	}
	return out
}

// hasLink reports whether one of the owner's links has an index. The objects of a link that is gone went with it.
func (r *Reconciler) hasLink(index int) bool {
	for _, l := range r.links {
		if l.Index == index {
			return true
		}
	}
	return false
}

// routeBody returns the body of a message that identifies a route.
func routeBody(k routeKey, v routeValue, protocol byte) netlink.Buffer {
	b := kernel.RouteMessage(netlink.AddrFamily(k.dst.Addr()), k.dst.Bits(), k.table, unix.RT_SCOPE_NOWHERE, 0)
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
