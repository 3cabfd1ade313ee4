package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// addrRange is a range of addresses of one family, both ends included.
type addrRange struct{ first, last netip.Addr }

func (r addrRange) String() string {
	if r.first == r.last {
		return r.first.String()
	}
	return r.first.String() + "-" + r.last.String()
}

func rangeOf(p netip.Prefix) addrRange {
	last := p.Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	end, _ := netip.AddrFromSlice(last)
	return addrRange{p.Masked().Addr(), end}
}

// prefixes returns the prefixes that a range consists of.
func (r addrRange) prefixes() (out []netip.Prefix) {
	for first := r.first; first.IsValid() && !r.last.Less(first); {
		p := netip.PrefixFrom(first, first.BitLen())
		for p.Bits() > 0 {
			larger := netip.PrefixFrom(first, p.Bits()-1)
			if x := rangeOf(larger); x.first != first || r.last.Less(x.last) {
				break
			}
			p = larger
		}
		out = append(out, p)
		first = rangeOf(p).last.Next()
	}
	return out
}

// subtract returns the parts of a range that no other range covers.
func (r addrRange) subtract(others []addrRange) (out []addrRange) {
	for _, o := range mergeAddrs(others) {
		if o.last.Less(r.first) || r.last.Less(o.first) {
			continue
		}
		if r.first.Less(o.first) {
			out = append(out, addrRange{r.first, o.first.Prev()})
		}
		if !o.last.Less(r.last) {
			return out
		}
		r.first = o.last.Next()
	}
	return append(out, r)
}

// Without returns the parts of a prefix outside ranges of addresses, each given by its first and last address.
func Without(p netip.Prefix, ranges [][2]netip.Addr) (out []netip.Prefix) {
	var others []addrRange
	for _, r := range ranges {
		if r[0].BitLen() == p.Addr().BitLen() {
			others = append(others, addrRange{r[0], r[1]})
		}
	}
	for _, r := range rangeOf(p).subtract(others) {
		out = append(out, r.prefixes()...)
	}
	return out
}

// mergeAddrs sorts ranges and joins those that overlap or follow each other. It changes the list.
func mergeAddrs(list []addrRange) (out []addrRange) {
	slices.SortFunc(list, func(a, b addrRange) int { return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last)) })
	for _, r := range list {
		if n := len(out); n > 0 && follows(out[n-1].last, r.first) {
			if out[n-1].last.Less(r.last) {
				out[n-1].last = r.last
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// follows reports whether a range that starts at next continues one that ends at last or later.
func follows(last, next netip.Addr) bool {
	if last.Is4() != next.Is4() {
		return false
	}
	after := last.Next()
	return !after.IsValid() || !after.Less(next)
}

// portRange is a range of destination ports of a protocol, both ends included.
type portRange struct {
	protocol    string // "tcp", "udp" or "sctp"
	first, last uint16
}

func (r portRange) String() string {
	if r.first == r.last {
		return fmt.Sprintf("%s . %d", r.protocol, r.first)
	}
	return fmt.Sprintf("%s . %d-%d", r.protocol, r.first, r.last)
}

// mergePorts sorts ranges and joins those that overlap or follow each other. It changes the list.
func mergePorts(list []portRange) (out []portRange) {
	slices.SortFunc(list, func(a, b portRange) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
	})
	for _, r := range list {
		if n := len(out); n > 0 && out[n-1].protocol == r.protocol && int(r.first) <= int(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}
