package nft

import (
	"bytes"
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// bound is an element as the kernel lists it. In a set of intervals of a single field, it is the start or the end of an
// interval.
type bound struct {
	key, last []byte // last: of a range in a concatenation
	end       bool
	value     string
	extra     bool // has a timeout, a comment or a statement, which Elements does not write
}

// Parse decodes the kernel's list of elements, values by key. regular is false if the list has something that Add does not
// write. Then only Flush certainly deletes all elements.
func (s *Elements) Parse(msgs [][]byte) (elements map[string]string, regular bool) {
	list := s.bounds(msgs)
	regular = !slices.ContainsFunc(list, func(b bound) bool { return b.extra })
	elements = make(map[string]string, len(list))
	switch {
	case !s.Interval:
		for _, b := range list {
			elements[string(b.key)] = b.value
		}
	case len(s.Type.Key) > 1:
		for _, b := range list {
			elements[string(b.key)+string(b.last)] = b.value
		}
	default:
		regular = intervals(list, elements) && regular
	}
	return elements, regular
}

func (s *Elements) bounds(msgs [][]byte) (out []bound) {
	EachElement(msgs, func(attrs []byte) { out = append(out, s.bound(attrs)) })
	return out
}

func (s *Elements) bound(p []byte) bound {
	x := ParseSetElement(p)
	b := bound{key: x.Key, last: netlink.Attr(netlink.Attr(p, elementKeyEnd), unix.NFTA_DATA_VALUE), end: x.End}
	if b.last == nil {
		b.last = b.key
	}
	data := netlink.Attr(p, unix.NFTA_SET_ELEM_DATA)
	if s.Type.Verdict {
		b.value = verdictText(netlink.Attr(data, unix.NFTA_DATA_VERDICT))
	} else if s.Type.Data != nil {
		b.value = s.Type.Data.Format(netlink.Attr(data, unix.NFTA_DATA_VALUE))
	}
	for _, typ := range []uint16{unix.NFTA_SET_ELEM_TIMEOUT, unix.NFTA_SET_ELEM_EXPR, elementExpressions, unix.NFTA_SET_ELEM_OBJREF} {
		b.extra = b.extra || netlink.Attr(p, typ) != nil
	}
	b.extra = b.extra || ParseComment(netlink.Attr(p, unix.NFTA_SET_ELEM_USERDATA)) != ""
	return b
}

// intervals joins the starts and ends of intervals. It reports whether each start has an end. nft(8) adds an end at
// zero to a set that it fills: what is below the first interval is then outside of all.
func intervals(list []bound, elements map[string]string) (regular bool) {
	slices.SortFunc(list, func(a, b bound) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(order(a), order(b)))
	})
	regular = true
	for i, b := range list {
		if b.end {
			before := i > 0 && !list[i-1].end
			regular = regular && (before || len(bytes.Trim(b.key, "\x00")) == 0)
			continue
		}
		last := bytes.Repeat([]byte{0xff}, len(b.key))
		if i+1 < len(list) {
			regular = regular && list[i+1].end
			if last = predecessor(list[i+1].key); last == nil {
				return false // two starts at zero, which the kernel does not have
			}
		}
		elements[string(b.key)+string(last)] = b.value
	}
	return regular
}

// order sorts the end of an interval before the start of the next one.
func order(b bound) int {
	if b.end {
		return 0
	}
	return 1
}
