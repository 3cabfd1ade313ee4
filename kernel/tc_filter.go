package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// TCFilter sends packets of a qdisc to a class or out of another link. It matches the packet's source or destination
// address, or every packet. It goes away with its qdisc. Source: tc-u32(8), tc-mirred(8).
type TCFilter struct {
	base
	In       Side         `json:",omitzero"`
	Link     string       `json:",omitzero"`
	Parent   Handle       `json:",omitzero"`
	Prefix   netip.Prefix `json:",omitzero"` // zero: every packet
	From     bool         `json:",omitzero"` // Prefix is the source, not the destination
	Class    Handle       `json:",omitzero"` // RootHandle: not shaped
	Redirect string       `json:",omitzero"` // the link to send packets out of instead
	Priority uint16       `json:",omitzero"` // lower numbers match first
}

func (f *TCFilter) kind() string { return "filter" }
func (f *TCFilter) Side() Side   { return f.In }
func (f *TCFilter) Shared() bool { return false }
func (f *TCFilter) on() linkName { return linkName{f.In, f.Link} }

func (f *TCFilter) String() string {
	s := fmt.Sprintf("tc filter add dev %s parent %s prio %d", f.Link, f.Parent, f.Priority)
	switch {
	case !f.Prefix.IsValid():
		s += " protocol all u32 match u32 0 0"
	default:
		family, side := "ip", "dst"
		if f.Prefix.Addr().Is6() {
			family = "ipv6"
		}
		if f.From {
			side = "src"
		}
		match := family
		if match == "ipv6" {
			match = "ip6"
		}
		s += fmt.Sprintf(" protocol %s u32 match %s %s %s", family, match, side, f.Prefix)
	}
	if f.Redirect != "" {
		return s + " action mirred egress redirect dev " + f.Redirect
	}
	return s + " flowid " + f.Class.String()
}

const ( // linux/pkt_cls.h, linux/tc_act/tc_mirred.h
	tcaU32ClassID, tcaU32Sel, tcaU32Act = 1, 5, 7
	u32Terminal                         = 1
	tcaActKind, tcaActOptions           = 1, 2
	tcaMirredParms                      = 2
	tcActStolen, mirredEgressRedirect   = 4, 1
)

func (f *TCFilter) ensure(e *Engine) error {
	i, err := e.LinkIndex(f.In, f.Link)
	if err != nil {
		return err
	}
	to := 0
	if f.Redirect != "" {
		if to, err = e.LinkIndex(f.In, f.Redirect); err != nil {
			return err
		}
	}
	b := tcmsg(i, f.Parent, 0, uint32(f.Priority)<<16|uint32(f.protocol()))
	b.String(unix.TCA_KIND, "u32")
	b.Nest(unix.TCA_OPTIONS, func(n *netlink.Buffer) {
		n.Bytes(tcaU32Sel, f.selector())
		if f.Redirect == "" {
			n.Uint32(tcaU32ClassID, uint32(f.Class))
			return
		}
		n.Nest(tcaU32Act, func(n *netlink.Buffer) { n.Nest(1, func(n *netlink.Buffer) { mirred(n, to) }) })
	})
	return e.send(f, f.In, netlink.Request{Type: unix.RTM_NEWTFILTER, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: b}, nil)
}

// protocol returns the ethertype in network byte order.
func (f *TCFilter) protocol() uint16 {
	p := uint16(unix.ETH_P_ALL)
	if f.Prefix.IsValid() {
		p = unix.ETH_P_IP
		if f.Prefix.Addr().Is6() {
			p = unix.ETH_P_IPV6
		}
	}
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p))
}

// selector returns struct tc_u32_sel with one key per 32 bits of the address, at its offset in the header, RFC 791 and
// 8200.
func (f *TCFilter) selector() []byte {
	keys := []byte{}
	if f.Prefix.IsValid() {
		ip := f.Prefix.Masked().Addr().AsSlice()
		offset := map[bool]int{true: 12, false: 8}[len(ip) == 4]
		if !f.From {
			offset += len(ip)
		}
		for at := 0; at < len(ip) && at*8 < f.Prefix.Bits(); at += 4 {
			mask := ^uint32(0)
			if bits := f.Prefix.Bits() - at*8; bits < 32 {
				mask <<= 32 - bits
			}
			keys = binary.BigEndian.AppendUint32(keys, mask)
			keys = append(keys, ip[at:at+4]...)
			keys = binary.NativeEndian.AppendUint32(keys, uint32(offset+at))
			keys = append(keys, 0, 0, 0, 0)
		}
	}
	if len(keys) == 0 {
		keys = make([]byte, 16)
	}
	sel := make([]byte, 16)
	sel[0], sel[2] = u32Terminal, byte(len(keys)/16)
	return append(sel, keys...)
}

// mirred writes the action that sends a packet out of another link.
func mirred(n *netlink.Buffer, to int) {
	n.String(tcaActKind, "mirred")
	n.Nest(tcaActOptions, func(n *netlink.Buffer) {
		var p []byte
		for _, v := range []uint32{0, 0, tcActStolen, 0, 0, mirredEgressRedirect, uint32(to)} {
			p = binary.NativeEndian.AppendUint32(p, v)
		}
		n.Bytes(tcaMirredParms, p)
	})
}

func (f *TCFilter) diff(e *Engine) ([]string, error) {
	i, err := e.LinkIndex(f.In, f.Link)
	if err != nil {
		return nil, err
	}
	msgs, err := e.Dump(f.In, netlink.Request{Type: unix.RTM_GETTFILTER, Body: tcmsg(i, f.Parent, 0, 0)})
	if errors.Is(err, unix.EINVAL) || netlink.IsAbsent(err) {
		return nil, os.ErrNotExist // the qdisc is missing, too
	}
	if err != nil {
		return nil, err
	}
	want := string(f.selector()[16:])
	for _, m := range msgs {
		if len(m) >= sizeofTcmsg && f.isIn(m, want) {
			return f.target(e, netlink.Attr(m[sizeofTcmsg:], unix.TCA_OPTIONS))
		}
	}
	return nil, os.ErrNotExist
}

// target compares the class, or the link that packets are redirected to. The kernel keeps a filter whose target is gone.
func (f *TCFilter) target(e *Engine, options []byte) ([]string, error) {
	if f.Redirect == "" {
		return unequal("flowid", Handle(netlink.Uint32(netlink.Attr(options, tcaU32ClassID))), f.Class), nil
	}
	action := netlink.Attr(netlink.Attr(options, tcaU32Act), 1)
	parms := netlink.Attr(netlink.Attr(action, tcaActOptions), tcaMirredParms)
	to, err := e.LinkIndex(f.In, f.Redirect)
	if errors.Is(err, os.ErrNotExist) {
		return []string{f.Redirect + " is missing"}, nil
	}
	if err == nil && (len(parms) < 28 || int(netlink.Uint32(parms[24:])) != to) {
		return []string{"does not redirect to " + f.Redirect}, nil
	}
	return nil, err
}

func (f *TCFilter) isIn(m []byte, keys string) bool {
	options := netlink.Attr(m[sizeofTcmsg:], unix.TCA_OPTIONS)
	sel := netlink.Attr(options, tcaU32Sel)
	return netlink.Uint32(m[16:]) == uint32(f.Priority)<<16|uint32(f.protocol()) && len(sel) >= 16 && string(sel[16:]) == keys
}

// restore replaces the filters of the same priority.
func (f *TCFilter) restore(e *Engine) error {
	i, err := e.LinkIndex(f.In, f.Link)
	if err != nil {
		return err
	}
	b := tcmsg(i, f.Parent, 0, uint32(f.Priority)<<16|uint32(f.protocol()))
	_, err = e.Request(f.In, netlink.Request{Type: unix.RTM_DELTFILTER, Flags: 0, Body: b})
	if err != nil && !netlink.IsAbsent(err) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return f.ensure(e)
}

func (f *TCFilter) remove(*Engine) error { return nil }
