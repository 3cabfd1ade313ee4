package address

import (
	"iter"
	"math/big"
	"math/rand/v2"
	"net/netip"

	"github.com/fairlead/fairlead/agent/address/local"
)

// maxLooked bounds how many addresses of a range are looked at.
const maxLooked = 1 << 20

// spread are the addresses of ranges in the order in which this node wants them: those
// of its own part first, so that nodes seldom want the same; then the others', from
// anywhere on, so that not all want the first of a neighbour's.
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

// rank is this node's place among those of the cluster.
func (m *Manager) rank() (rank, nodes uint64) {
	for name := range m.view.snap.Nodes {
		if nodes++; name < m.Node {
			rank++
		}
	}
	if m.view.snap.Nodes[m.Node] == nil {
		nodes++
	}
	return rank, nodes
}

// countOf is how many addresses of a range are looked at.
func countOf(r local.Span) uint64 {
	size := new(big.Int).SetBytes(r.Last.AsSlice())
	size.Sub(size, new(big.Int).SetBytes(r.First.AsSlice()))
	if size.IsUint64() && size.Uint64() < maxLooked {
		return size.Uint64() + 1
	}
	return maxLooked
}

// walk yields a range's addresses by their numbers, from one to before another.
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
