package nft

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Element is one element of a set or map, its key and value as nft(8) writes them.
type Element struct {
	Family, Table, Set string
	Type               string // of the set
	Key                string
	Value              string // "" in a set
	Comment            string
}

// Add returns the request that adds the element. It fails if the key exists.
func (x *Element) Add() (netlink.Request, error) {
	body, err := x.message(true)
	return netlink.Request{Type: Subsystem | unix.NFT_MSG_NEWSETELEM, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: body}, err
}

// Get returns the request that reads the element with the key.
func (x *Element) Get() (netlink.Request, error) {
	body, err := x.message(false)
	return netlink.Request{Type: Subsystem | unix.NFT_MSG_GETSETELEM, Body: body}, err
}

// Delete returns the request that deletes the element with the key.
func (x *Element) Delete() (netlink.Request, error) {
	body, err := x.message(false)
	return netlink.Request{Type: Subsystem | unix.NFT_MSG_DELSETELEM, Body: body}, err
}

// message names the element by its key; if whole, with its value and comment.
func (x *Element) message(whole bool) (netlink.Buffer, error) {
	t, err := ParseSetType(x.Type)
	if err != nil {
		return nil, err
	}
	key, err := t.Key.Value(x.Key)
	if err != nil {
		return nil, err
	}
	var data []byte
	if x.Value != "" {
		if data, err = t.Data.Value(x.Value); err != nil {
			return nil, err
		}
	}
	b := SetMessage(x.Family, x.Table, x.Set)
	b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b *netlink.Buffer) {
		b.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) {
			b.Nest(unix.NFTA_SET_ELEM_KEY, func(b *netlink.Buffer) { b.Bytes(unix.NFTA_DATA_VALUE, key) })
			if whole && data != nil {
				b.Nest(unix.NFTA_SET_ELEM_DATA, func(b *netlink.Buffer) { b.Bytes(unix.NFTA_DATA_VALUE, data) })
			}
			if whole && x.Comment != "" {
				b.Bytes(unix.NFTA_SET_ELEM_USERDATA, Comment(x.Comment))
			}
		})
	})
	return b, nil
}

// SetMessage starts the body of a message about the elements of a set.
func SetMessage(family, table, set string) netlink.Buffer {
	b := Message(family)
	b.String(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	b.String(unix.NFTA_SET_ELEM_LIST_SET, set)
	return b
}

// ElementInfo is an element as the kernel reports it.
type ElementInfo struct {
	Key, Data []byte
	Comment   string
}

// ParseElements decodes messages about elements.
func ParseElements(msgs [][]byte) (out []ElementInfo) {
	EachElement(msgs, func(p []byte) {
		out = append(out, ElementInfo{
			Key:     netlink.Attr(netlink.Attr(p, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE),
			Data:    netlink.Attr(netlink.Attr(p, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VALUE),
			Comment: ParseComment(netlink.Attr(p, unix.NFTA_SET_ELEM_USERDATA)),
		})
	})
	return out
}

// ParseSet decodes the name and the type, as ParseSetType reads it, of a set or map.
func ParseSet(p []byte) (name, typ string) {
	typ = typesName(netlink.Attr(p, unix.NFTA_SET_KEY_TYPE), netlink.Attr(p, unix.NFTA_SET_KEY_LEN))
	switch data := netlink.Attr(p, unix.NFTA_SET_DATA_TYPE); {
	case len(data) != 4:
	case netlink.Uint32BE(data) == verdictType:
		typ += " : verdict"
	default:
		typ += " : " + typesName(data, netlink.Attr(p, unix.NFTA_SET_DATA_LEN))
	}
	return netlink.Text(netlink.Attr(p, unix.NFTA_SET_NAME)), typ
}

// Comment encodes the userdata that nft(8) prints as the comment of a rule, an element
// or a table: type, length, text and a zero byte.
func Comment(s string) []byte {
	return append(append([]byte{0, byte(len(s) + 1)}, s...), 0)
}

// ParseComment is the reverse of Comment. It returns "" if there is no comment.
func ParseComment(p []byte) string {
	for len(p) >= 2 && len(p) >= 2+int(p[1]) {
		if p[0] == 0 {
			return netlink.Text(p[2 : 2+int(p[1])])
		}
		p = p[2+int(p[1]):]
	}
	return ""
}
