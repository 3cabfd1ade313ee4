package doctor

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nft"
)

// packet is a packet that rules are evaluated on. A zero field is unknown: a rule that matches on it may match or not.
type packet struct {
	in, out  *kernel.LinkInfo
	src, dst netip.Addr
	proto    byte
	port     uint16 // destination port
	state    uint32 // connection tracking state, one bit; see ctNew
	dnat     bool
	local    bool // the destination is an address of the host
}

// Bits of "ct state" and "ct status", from linux/netfilter/nf_conntrack_common.h.
const (
	ctEstablished = 1 << 1
	ctNew         = 1 << 3
	ctDNATed      = 1 << 5
	localType     = 2 // RTN_LOCAL
	unicastType   = 1
)

func (p packet) family() string {
	if p.src.Is4() || p.dst.Is4() {
		return "ip"
	}
	return "ip6"
}

// answer is the result of a comparison: yes, no or maybe.
type answer int

const (
	no answer = iota
	maybe
	yes
)

// value returns a field of the packet in nftables' encoding, or nil if it is unknown. absent is true if the packet has
// no such field.
func (p packet) value(field string) (v []byte, absent bool) {
	name := func(l *kernel.LinkInfo) []byte {
		if l == nil {
			return nil
		}
		b := make([]byte, 16)
		copy(b, l.Name)
		return b
	}
	index := func(l *kernel.LinkInfo) []byte {
		if l == nil {
			return nil
		}
		return binary.NativeEndian.AppendUint32(nil, uint32(l.Index))
	}
	v4 := p.family() == "ip"
	switch field {
	case "ip saddr":
		return addr(p.src), !v4
	case "ip daddr":
		return addr(p.dst), !v4
	case "ip6 saddr":
		return addr(p.src), v4
	case "ip6 daddr":
		return addr(p.dst), v4
	case "iifname":
		return name(p.in), false
	case "oifname":
		return name(p.out), false
	case "iif":
		return index(p.in), false
	case "oif":
		return index(p.out), false
	case "meta nfproto":
		return map[bool][]byte{true: {kernel.IPv4}, false: {kernel.IPv6}}[v4], false
	}
	return p.upper(field), false
}

func (p packet) upper(field string) []byte {
	switch {
	case field == "meta l4proto" && p.proto != 0:
		return []byte{p.proto}
	case field == "th dport" && p.port != 0:
		return binary.BigEndian.AppendUint16(nil, p.port)
	case field == "ct state" && p.state != 0:
		return binary.NativeEndian.AppendUint32(nil, p.state)
	case field == nft.FieldCTState && p.state != 0:
		state := p.state
		if p.dnat {
			state |= nft.XTStateDNAT
		}
		return binary.NativeEndian.AppendUint32(nil, state)
	case field == nft.FieldDstType:
		return binary.NativeEndian.AppendUint32(nil, map[bool]uint32{true: 1 << localType, false: 1 << unicastType}[p.local])
	case field == "ct status" && (p.dnat || p.state == ctNew):
		return binary.NativeEndian.AppendUint32(nil, map[bool]uint32{true: ctDNATed}[p.dnat])
	case field == "fib daddr type":
		return binary.NativeEndian.AppendUint32(nil, map[bool]uint32{true: localType, false: unicastType}[p.local])
	}
	return nil
}

func addr(a netip.Addr) []byte {
	if !a.IsValid() {
		return nil
	}
	return a.AsSlice()
}

// compare evaluates one step of a rule on the packet.
func (p packet) compare(s nft.Step, sets map[string]*nft.Set) (answer, nft.Step) {
	v, absent := p.value(s.Field)
	if absent {
		return no, nft.Step{}
	}
	if v == nil {
		return maybe, nft.Step{}
	}
	v = masked(v, s.Mask)
	if s.Set != "" {
		return lookup(v, s, sets[s.Set])
	}
	n := min(len(v), len(s.Value)) // an interface name may be a prefix, and so may an address
	if n == 0 {
		return maybe, nft.Step{}
	}
	if len(s.Value) > len(v) {
		return maybe, nft.Step{}
	}
	return ordered(bytes.Compare(v[:n], s.Value), s.Op), nft.Step{}
}

func masked(v, mask []byte) []byte {
	if mask == nil {
		return v
	}
	out := bytes.Clone(v)
	for i := range out {
		if i < len(mask) {
			out[i] &= mask[i]
		}
	}
	return out
}

func ordered(c, op int) answer {
	ok := map[int]bool{
		nft.CmpEqual: c == 0, nft.CmpNotEqual: c != 0, nft.CmpLess: c < 0,
		nft.CmpLessEqual: c <= 0, nft.CmpGreater: c > 0, nft.CmpGreaterEqual: c >= 0,
	}[op]
	if ok {
		return yes
	}
	return no
}

// lookup finds a value in a set. In a verdict map it also returns the verdict.
func lookup(v []byte, s nft.Step, set *nft.Set) (answer, nft.Step) {
	if set == nil || set.Unknown {
		return maybe, nft.Step{}
	}
	in := no
	var then nft.Step
	var below []byte
	for _, x := range set.Elements {
		if len(x.Key) != len(v) {
			return maybe, nft.Step{}
		}
		if !set.Intervals {
			if bytes.Equal(x.Key, v) {
				in, then = yes, nft.Step{Verdict: x.Verdict, Chain: x.Chain}
			}
			continue
		}
		// In an interval set, the largest bound that is not above the value decides.
		if bytes.Compare(x.Key, v) <= 0 && (below == nil || bytes.Compare(x.Key, below) > 0 || bytes.Equal(x.Key, below) && !x.End) {
			below, in, then = x.Key, yes, nft.Step{Verdict: x.Verdict, Chain: x.Chain}
			if x.End {
				in = no
			}
		}
	}
	if s.Not {
		in = yes - in
	}
	return in, then
}
