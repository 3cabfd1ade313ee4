package address

import (
	"iter"
	"math/big"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
)

// maxLooked bounds how many addresses of a range are looked at.
const maxLooked = 1 << 20

// spread are the addresses of a range, from a place on and round.
func spread(r local.Span, start uint64) iter.Seq[netip.Addr] {
	first, size := new(big.Int).SetBytes(r.First.AsSlice()), new(big.Int)
	size.Sub(size.SetBytes(r.Last.AsSlice()), first)
	n := uint64(maxLooked)
	if size.IsUint64() && size.Uint64() < maxLooked {
		n = size.Uint64() + 1
	}
	// Quarters and such: a node's part is whole, whatever the size.
	offset := new(big.Int).SetUint64(start % n)
	raw := make([]byte, len(r.First.AsSlice()))
	from, _ := netip.AddrFromSlice(first.Add(first, offset).FillBytes(raw))
	return func(yield func(netip.Addr) bool) {
		for ip := from; r.Contains(ip); ip = ip.Next() {
			if !yield(ip) {
				return
			}
		}
		for ip := r.First; ip.Less(from); ip = ip.Next() {
			if !yield(ip) {
				return
			}
		}
	}
}
