package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Protocol is the protocol number of Fairlead's routes, rules and neighbours: "proto" of ip(8).
const Protocol = 102

// Protocol numbers of other routes, rtnetlink(7).
const (
	ProtocolKernel = unix.RTPROT_KERNEL // the kernel adds them with addresses
	ProtocolBoot   = unix.RTPROT_BOOT   // of ip(8)
	ProtocolRA     = unix.RTPROT_RA     // from router advertisements
	ProtocolDHCP   = unix.RTPROT_DHCP   // of a DHCP client
)

// Address scopes, rtnetlink(7).
const (
	ScopeUniverse = unix.RT_SCOPE_UNIVERSE
	ScopeHost     = unix.RT_SCOPE_HOST
	ScopeLink     = unix.RT_SCOPE_LINK
)

// Address families, for lists.
const (
	IPv4 = unix.AF_INET
	IPv6 = unix.AF_INET6
)

// Routing tables, rtnetlink(7).
const (
	MainTable  = unix.RT_TABLE_MAIN
	LocalTable = unix.RT_TABLE_LOCAL // the host's own addresses; only the kernel changes it
)

// Route is a route of a namespace.
type Route struct {
	base
	In          Side         `json:",omitzero"`
	Dst         netip.Prefix `json:",omitzero"`
	Via         netip.Addr   `json:",omitzero"` // gateway; zero: none
	Link        string       `json:",omitzero"`
	Src         netip.Addr   `json:",omitzero"` // preferred source; zero: the kernel's choice
	Scope       *int         `json:",omitzero"` // rtnetlink(7); nil: link scope without a gateway, else global
	Metric      int          `json:",omitzero"` // 0: the kernel's default
	Table       int          `json:",omitzero"` // 0: main
	MTU         int          `json:",omitzero"` // bytes; 0: none
	AdvMSS      int          `json:",omitzero"` // bytes; 0: none
	OnLink      bool         `json:",omitzero"` // the gateway is on the link even if no address says so
	IsShared    bool         `json:",omitzero"`
	AllowOthers bool         `json:"Beside,omitzero"` // another route to the destination is not an error; IPv4 uses the newest one, IPv6 all of them
	Proto       byte         `json:",omitzero"`       // protocol number, rtnetlink(7); 0: Protocol
	Takeover    bool         `json:",omitzero"`       // a reconciler replaces a third-party route to the destination
	Hops        []Hop        `json:",omitzero"`       // several gateways (ECMP); Via is empty then
	Type        RouteType    `json:",omitzero"`

	vrf string // the VRF that a later plugin puts the link into; "": none
}

// RouteType tells what happens to the packets of a route. Only Unicast has a link.
type RouteType byte

// Route types, ip-route(8).
const (
	Unicast     RouteType = 0
	Blackhole   RouteType = unix.RTN_BLACKHOLE   // dropped
	Unreachable RouteType = unix.RTN_UNREACHABLE // the sender gets "no route to host"
)

func (t RouteType) String() string {
	switch t {
	case Blackhole:
		return "blackhole"
	case Unreachable:
		return "unreachable"
	}
	return "unicast"
}

// Hop is one of several gateways on a route's link.
type Hop struct {
	Via    netip.Addr
	Weight int // 1 to 256
}

func (r *Route) kind() string { return "route" }
func (r *Route) Side() Side   { return r.In }
func (r *Route) Shared() bool { return r.IsShared }
func (r *Route) on() linkName { return linkName{r.In, r.Link} }

func (r *Route) String() string {
	dst := r.Dst.String()
	if r.Dst.Bits() == 0 {
		dst = "default"
	}
	s := "ip "
	if r.Dst.Addr().Is6() {
		s += "-6 "
	}
	s += "route add "
	if r.Type != Unicast {
		return s + r.Type.String() + " " + dst + r.options()
	}
	s += dst
	if r.Via.IsValid() {
		s += " via " + r.Via.String()
	}
	for _, h := range r.Hops {
		s += fmt.Sprintf(" nexthop via %s weight %d", h.Via, h.Weight)
	}
	s += " dev " + r.Link
	if r.Src.IsValid() {
		s += " src " + r.Src.String()
	}
	return s + r.options()
}

func (r *Route) options() (s string) {
	if r.Scope != nil {
		s += " scope " + strconv.Itoa(*r.Scope)
	}
	for _, n := range []struct {
		word string
		v    int
	}{{"metric", r.Metric}, {"table", r.Table}, {"mtu", r.MTU}, {"advmss", r.AdvMSS}} {
		if n.v != 0 {
			s += " " + n.word + " " + strconv.Itoa(n.v)
		}
	}
	if r.OnLink {
		s += " onlink"
	}
	return s
}

func (r *Route) scope() byte {
	switch {
	case r.Scope != nil:
		return byte(*r.Scope)
	case r.Via.IsValid() || r.Dst.Addr().Is6() || len(r.Hops) > 0 || r.Type != Unicast:
		return unix.RT_SCOPE_UNIVERSE
	}
	return unix.RT_SCOPE_LINK
}

// RoutingTable returns the route's table, or the main table if Table is 0.
func (r *Route) RoutingTable() int {
	if r.Table == 0 {
		return unix.RT_TABLE_MAIN
	}
	return r.Table
}

// Message returns the body of a message about the route: struct rtmsg, rtnetlink(7).
func (r *Route) Message(index int) netlink.Buffer {
	var flags uint32
	if r.OnLink {
		flags = unix.RTNH_F_ONLINK
	}
	b := RouteMessage(netlink.AddrFamily(r.Dst.Addr()), r.Dst.Bits(), r.RoutingTable(), r.scope(), flags)
	if r.Proto != 0 {
		b[5] = r.Proto
	}
	b[7] = r.KernelType()
	b.Addr(unix.RTA_DST, r.Dst.Masked().Addr())
	if r.Via.IsValid() {
		b.Addr(unix.RTA_GATEWAY, r.Via)
	}
	if r.Src.IsValid() {
		b.Addr(unix.RTA_PREFSRC, r.Src)
	}
	if len(r.Hops) > 0 {
		b.Bytes(unix.RTA_MULTIPATH, r.hops(index))
	} else if index != 0 {
		b.Uint32(unix.RTA_OIF, uint32(index))
	}
	b.Uint32(unix.RTA_TABLE, uint32(r.RoutingTable()))
	if r.Metric != 0 {
		b.Uint32(unix.RTA_PRIORITY, uint32(r.Metric))
	}
	if r.MTU != 0 || r.AdvMSS != 0 {
		b.Nest(unix.RTA_METRICS, func(n *netlink.Buffer) {
			if r.MTU != 0 {
				n.Uint32(unix.RTAX_MTU, uint32(r.MTU))
			}
			if r.AdvMSS != 0 {
				n.Uint32(unix.RTAX_ADVMSS, uint32(r.AdvMSS))
			}
		})
	}
	return b
}

// hops returns a list of struct rtnexthop, rtnetlink(7).
func (r *Route) hops(index int) (b netlink.Buffer) {
	for _, h := range r.Hops {
		var gw netlink.Buffer
		gw.Addr(unix.RTA_GATEWAY, h.Via)
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtNexthop+len(gw)))
		flags := byte(0)
		if r.OnLink {
			flags = unix.RTNH_F_ONLINK
		}
		b = append(b, flags, byte(h.Weight-1))
		b = binary.NativeEndian.AppendUint32(b, uint32(index))
		b = append(b, gw...)
	}
	return b
}

// parseHops decodes such a list. all is false if the hops use several links.
func parseHops(p []byte) (hops []Hop, index int, all bool) {
	all = true
	complete := eachHop(p, func(hop []byte) {
		i := int(netlink.Uint32(hop[4:]))
		all = all && (index == 0 || i == index)
		index = i
		hops = append(hops, Hop{netlink.Addr(netlink.Attr(hop[unix.SizeofRtNexthop:], unix.RTA_GATEWAY)), int(hop[3]) + 1})
	})
	return hops, index, all && complete
}

// RouteMessage starts the body of a message about a unicast route, or about a rule: struct rtmsg, rtnetlink(7).
func RouteMessage(family byte, bits, table int, scope byte, flags uint32) netlink.Buffer {
	t := byte(unix.RT_TABLE_COMPAT)
	if table < 256 {
		t = byte(table)
	}
	b := make(netlink.Buffer, 0, 128)
	b = append(b, family, byte(bits), 0, 0, t, Protocol, scope, unix.RTN_UNICAST)
	return binary.NativeEndian.AppendUint32(b, flags)
}

// LinkIndex returns the index of the route's link, or 0 if it has none.
func (r *Route) LinkIndex(e *Engine) (int, error) {
	if r.Type != Unicast {
		return 0, nil
	}
	return e.LinkIndex(r.In, r.Link)
}

// KernelType returns the kernel's number for the route type, RTN_*.
func (r *Route) KernelType() byte {
	if r.Type == Unicast {
		return unix.RTN_UNICAST
	}
	return byte(r.Type)
}

func (r *Route) ensure(e *Engine) error {
	i, err := r.LinkIndex(e)
	if err != nil {
		return err
	}
	flags := uint16(unix.NLM_F_CREATE)
	if !r.AllowOthers {
		flags |= unix.NLM_F_EXCL
	}
	return e.send(r, r.In, netlink.Request{Type: unix.RTM_NEWROUTE, Flags: flags, Body: r.Message(i)}, func(resp netlink.Response) error {
		if errors.Is(resp.Err, unix.EEXIST) {
			return r.acceptIfSame(e, resp.Err)
		}
		if resp.Err == nil {
			e.noteCreated(r)
		}
		return resp.Err
	})
}

// acceptIfSame accepts an existing route that is identical: the kernel adds the connected route itself.
func (r *Route) acceptIfSame(e *Engine, exists error) error {
	if d, err := r.diff(e); err == nil && len(d) == 0 {
		return nil
	}
	return fmt.Errorf("another route to %s exists: %w", r.Dst, exists)
}

func (r *Route) remove(e *Engine) error {
	i, err := r.LinkIndex(e)
	if err != nil {
		return err
	}
	_, err = e.Request(r.In, netlink.Request{Type: unix.RTM_DELROUTE, Flags: 0, Body: r.Message(i)})
	return err
}
