package reconcile

import (
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// NeedsResync reports whether an event contradicts what the reconciler remembers: something else removed, changed or
// added an object of the owner. The next Reconcile then lists the kernel.
//
// watch reports whether a further link matters, by its name and index: the underlay. The name is "" if the event lacks it,
// as every event about an IPv6 address does.
func (r *Reconciler) NeedsResync(ev Event, watch func(link string, index int) bool) bool {
	if ev.missed {
		r.Invalidate()
		return true
	}
	if !r.known || r.sentByUs(ev) {
		return false // the next Reconcile lists everything anyway, or the change is our own
	}
	bad := false
	switch {
	case ev.typ == unix.RTM_NEWNETCONF && !ev.nft:
		return ev.stopsForwarding() // each Reconcile compares settings
	case ev.nft:
		bad = ev.ofTable(r.owner.Table)
	case ev.typ == unix.RTM_NEWLINK || ev.typ == unix.RTM_DELLINK:
		bad = r.linkEvent(ev, watch)
	case ev.typ == unix.RTM_NEWROUTE || ev.typ == unix.RTM_DELROUTE:
		bad = r.routeEvent(ev)
	case ev.typ == unix.RTM_NEWNEIGH || ev.typ == unix.RTM_DELNEIGH:
		bad = r.neighEvent(ev)
	case ev.typ == unix.RTM_NEWADDR || ev.typ == unix.RTM_DELADDR:
		bad = r.addrEvent(ev, watch)
	case ev.typ == unix.RTM_DELRULE:
		bad = len(ev.body) >= unix.SizeofRtMsg && netlink.Uint8(netlink.Attr(ev.body[unix.SizeofRtMsg:], unix.FRA_PROTOCOL)) == r.owner.Protocol && r.wantsRule(ev.body)
	}
	if bad {
		r.Invalidate()
	}
	return bad
}

func (r *Reconciler) linkEvent(ev Event, watch func(string, int) bool) bool {
	l := kernel.ParseLink(ev.body)
	own, is := r.links[l.Name]
	if !is && !strings.HasPrefix(l.Alias, r.owner.Alias) {
		return watch != nil && watch(l.Name, l.Index)
	}
	if ev.typ == unix.RTM_DELLINK {
		return is && own.Index == l.Index
	}
	return !is || own.Index != l.Index || own.Up != l.Up || own.MTU != l.MTU || own.MAC != l.MAC || own.Alias != l.Alias
}

func (r *Reconciler) routeEvent(ev Event) bool {
	if len(ev.body) < unix.SizeofRtMsg {
		return false
	}
	h := kernel.ParseRoute(ev.body)
	k := routeKeyOf(h.Dst, h.Table, h.Metric)
	have, wanted := r.routes[k]
	if h.Protocol != r.owner.Protocol { // a third-party route replaced our route
		return wanted && ev.typ == unix.RTM_NEWROUTE && h.Dst.IsValid()
	}
	same := wanted && have == listedRoute(&h)
	return same == (ev.typ == unix.RTM_DELROUTE)
}

func (r *Reconciler) neighEvent(ev Event) bool {
	if len(ev.body) < unix.SizeofNdMsg {
		return false
	}
	index := int(netlink.Uint32(ev.body[4:]))
	if !r.hasLink(index) {
		return false
	}
	p := ev.body[unix.SizeofNdMsg:]
	mac, gone := hwaddr.Format(netlink.Attr(p, unix.NDA_LLADDR)), ev.typ == unix.RTM_DELNEIGH
	if ev.body[0] == unix.AF_BRIDGE {
		have, wanted := r.fdb[fdbKey{index, mac}]
		dst := netlink.Addr(netlink.Attr(p, unix.NDA_DST)) // kernel 6.12 reports an entry twice, once without its destination
		same := wanted && (!dst.IsValid() || have.dst == dst)
		return same == gone
	}
	have, wanted := r.neighs[neighKey{index, netlink.Addr(netlink.Attr(p, unix.NDA_DST))}]
	if gone || netlink.Uint16(ev.body[8:])&unix.NUD_PERMANENT == 0 { // a deleted entry in use stays as a failed one
		return wanted
	}
	return !wanted || have != mac
}

func (r *Reconciler) addrEvent(ev Event, watch func(string, int) bool) bool {
	if len(ev.body) < unix.SizeofIfAddrmsg || ev.body[3] == unix.RT_SCOPE_LINK {
		return false
	}
	index := int(netlink.Uint32(ev.body[4:]))
	if !r.hasLink(index) {
		name := netlink.Text(netlink.Attr(ev.body[unix.SizeofIfAddrmsg:], unix.IFA_LABEL))
		return watch != nil && watch(name, index)
	}
	return r.addrs[addrKey{index, netip.PrefixFrom(netlink.LocalAddr(ev.body), int(ev.body[1]))}] == (ev.typ == unix.RTM_DELADDR)
}

func (r *Reconciler) wantsRule(body []byte) bool {
	p := body[unix.SizeofRtMsg:]
	for k := range r.rules {
		if k.Priority == int(netlink.Uint32(netlink.Attr(p, unix.FRA_PRIORITY))) && k.Table == int(netlink.Uint32(netlink.Attr(p, unix.FRA_TABLE))) {
			return true
		}
	}
	return false
}

// ofTable reports whether an event is about an nftables table. Attribute 1 of all messages but one is the table.
func (ev Event) ofTable(name string) bool {
	return ev.nft && len(ev.body) >= 4 && ev.typ&0xff != unix.NFT_MSG_NEWGEN && netlink.Text(netlink.Attr(ev.body[4:], unix.NFTA_TABLE_NAME)) == name
}

// sentByUs reports whether a request of this reconciler caused the event. The kernel does not tell that of every event.
func (r *Reconciler) sentByUs(ev Event) bool {
	if ev.port == 0 {
		return false
	}
	return r.e.Sent(r.side, ev.port)
}

// linux/netconf.h
const (
	sizeofNetconfmsg  = 4
	netconfaIfindex   = 1
	netconfaForward   = 2
	netconfIfindexAll = -1
)

// stopsForwarding reports whether the namespace, or one of its links, does not forward packets of a family. The kernel
// reports each new link. Where IPv6 forwarding is off, this does not count for a link: IPv6 has only one setting.
func (ev Event) stopsForwarding() bool {
	if len(ev.body) < sizeofNetconfmsg {
		return false
	}
	p := ev.body[sizeofNetconfmsg:]
	ofAll := int32(netlink.Uint32(netlink.Attr(p, netconfaIfindex))) == netconfIfindexAll
	on := netlink.Attr(p, netconfaForward)
	return (ofAll || ev.body[0] == unix.AF_INET) && len(on) == 4 && netlink.Uint32(on) == 0
}
