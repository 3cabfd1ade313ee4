package ipam

import (
	"fmt"
	"net/netip"
)

// Usable returns nil if Allocate can work. Otherwise it returns why nothing can be stored, or an error that wraps
// ErrExhausted and names a range set without a free address.
func (s *Store) Usable(sets []RangeSet) error {
	if s.storeErr != nil {
		return s.storeErr
	}
	return s.withRebuild(func() error {
		for i, set := range sets {
			if _, _, err := s.nextFree(i, set); err != nil {
				return fmt.Errorf("range set %d: %w", i, err)
			}
		}
		return nil
	})
}

// span is a run of addresses to search.
type span struct {
	first, last u128
	r           Range
}

// spans lists a set's addresses in the order of allocation: it starts after the last allocated address and wraps around
// to it.
func spans(set RangeSet, last netip.Addr) []span {
	var list []span
	at := -1
	for i, r := range set {
		if last.IsValid() && r.Contains(last) {
			at = i
			break
		}
	}
	if at < 0 {
		for _, r := range set {
			list = append(list, span{number(r.Start), number(r.End), r})
		}
		return list
	}
	r := set[at]
	if last != r.End {
		list = append(list, span{number(last).add(1), number(r.End), r})
	}
	for i := 1; i < len(set); i++ {
		o := set[(at+i)%len(set)]
		list = append(list, span{number(o.Start), number(o.End), o})
	}
	return append(list, span{number(r.Start), number(last), r})
}

// nextFree returns the next address of a set that is neither allocated nor a gateway.
func (s *Store) nextFree(set int, ranges RangeSet) (netip.Addr, Range, error) {
	var last netip.Addr
	if set < len(s.last) {
		last, _ = netip.ParseAddr(s.last[set]) // if it is not an address, start from the beginning
		last = last.Unmap()
	}
	for _, st := range spans(ranges, last) {
		n, ok, err := s.index.nextFree(st.first, st.last)
		if ok && n.addr() == st.r.Gateway {
			if n = n.add(1); st.last.less(n) {
				continue
			}
			n, ok, err = s.index.nextFree(n, st.last)
		}
		if err != nil {
			return netip.Addr{}, Range{}, err
		}
		if ok {
			return n.addr(), st.r, nil
		}
	}
	return netip.Addr{}, Range{}, fmt.Errorf("%w in range set %s: all are allocated", ErrExhausted, ranges)
}
