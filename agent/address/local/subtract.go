package local

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/ipam"
)

// Subtract removes single addresses from ranges. Its cost per address is logarithmic.
func Subtract(set ipam.RangeSet, addrs []netip.Addr) (out ipam.RangeSet) {
	addrs = slices.Clone(addrs)
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, r := range set {
		i, _ := slices.BinarySearchFunc(addrs, r.Start, netip.Addr.Compare)
		rest, more := r, true
		for ; more && i < len(addrs) && rest.Contains(addrs[i]); i++ {
			if rest.Start.Less(addrs[i]) {
				before := rest
				before.End = addrs[i].Prev()
				out = append(out, before)
			}
			more = addrs[i].Less(rest.End)
			rest.Start = addrs[i].Next()
		}
		if more {
			out = append(out, rest)
		}
	}
	return out
}
