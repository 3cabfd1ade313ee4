package address

import (
	"iter"
	"math/big"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
)

// maxSearched limits how many addresses of a range are searched.
const maxSearched = 1 << 20

// spread yields the addresses of ranges in this node's order of preference. Its own part comes first, so that nodes
// rarely collide. The rest starts at a random address, so that nodes do not all try the same one.
func spread(ranges []local.Span, rank, nodes uint64) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, r := range ranges {
			n := countOf(r)
			if !walk(r, n*rank/nodes, n*(rank+1)/nodes, yield) {
				return
			}
		}
		for _, r := range ranges {
			n := countOf(r)
			from := rand.N(n)
			if !walk(r, from, n, yield) || !walk(r, 0, from, yield) {
				return
			}
		}
	}
}

// rank returns this node's position among the cluster's nodes, and their number.
func (m *Manager) rank() (rank, nodes uint64) {
	for name := range m.state.snap.Nodes {
		if nodes++; name < m.Node {
			rank++
		}
	}
	if m.state.snap.Nodes[m.Node] == nil {
		nodes++
	}
	return rank, nodes
}

// countOf returns how many addresses of a range to search.
func countOf(r local.Span) uint64 {
	size := new(big.Int).SetBytes(r.Last.AsSlice())
	size.Sub(size, new(big.Int).SetBytes(r.First.AsSlice()))
	if size.IsUint64() && size.Uint64() < maxSearched {
		return size.Uint64() + 1
	}
	return maxSearched
}

// walk yields the addresses of a range with the numbers from <= i < to.
func walk(r local.Span, from, to uint64, yield func(netip.Addr) bool) bool {
	raw := r.First.AsSlice()
	first := new(big.Int).SetBytes(raw)
	ip, _ := netip.AddrFromSlice(first.Add(first, new(big.Int).SetUint64(from)).FillBytes(raw))
	for ; from < to && r.Contains(ip); from++ {
		if !yield(ip) {
			return false
		}
		ip = ip.Next()
	}
	return true
}
