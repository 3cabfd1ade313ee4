package nft

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// ListElements returns the request for the elements of a set. Its reply may be incomplete; see Repeats.
func ListElements(family, table, set string) netlink.Request {
	return netlink.Request{Type: Subsystem | unix.NFT_MSG_GETSETELEM, Body: SetMessage(family, table, set)}
}

// DumpElements lists the elements of a set completely. Its errors are those of netlink.Conn.Dump.
func DumpElements(c *netlink.Conn, family, table, set string) ([][]byte, error) {
	return c.DumpComplete(ListElements(family, table, set), func(msgs [][]byte) bool { return !Repeats{}.Add(msgs) })
}

// Repeats finds elements that a list has twice.
//
// The kernel sends a long list in parts, and begins each part after as many elements as it has sent
// (nf_tables_dump_set). It also moves the elements of a set into a larger or smaller hash table in the background, which
// changes their order and is not a change that it reports. A list with such a change between two parts lacks some
// elements. As many others are in it twice, so a list without repeats is complete.
type Repeats map[string]bool

// Add adds a part of the list. It reports whether an element of this part is in the list twice.
func (r Repeats) Add(msgs [][]byte) (repeated bool) {
	EachElement(msgs, func(p []byte) {
		id := string(netlink.Attr(p, unix.NFTA_SET_ELEM_FLAGS)) // an interval may end with the key that the next one begins with
		id += "/" + string(netlink.Attr(p, unix.NFTA_SET_ELEM_KEY)) + string(netlink.Attr(p, elementKeyEnd))
		repeated = repeated || r[id]
		r[id] = true
	})
	return repeated
}

// EachElement calls f with the attributes of each element of a list.
func EachElement(msgs [][]byte, f func(attrs []byte)) {
	for _, m := range msgs {
		if len(m) >= 4 {
			netlink.EachAttr(netlink.Attr(m[4:], unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, p []byte) { f(p) })
		}
	}
}
