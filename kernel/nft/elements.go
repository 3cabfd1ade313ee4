package nft

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Elements encodes the elements of one set or map, many in each message, and decodes the kernel's list of them.
//
// A key is a string of bytes, in a set of intervals the first value followed by the last. A value is text as nft(8)
// writes it, and "" in a set.
type Elements struct {
	Family, Table, Set string
	Type               SetType
	Interval           bool
}

const (
	elementKeyEnd      = 10 // NFTA_SET_ELEM_KEY_END, linux/netfilter/nf_tables.h
	elementExpressions = 11 // NFTA_SET_ELEM_EXPRESSIONS

	maxElementList = 32 << 10 // bytes; the length of an attribute has 16 bits
)

// Key encodes the text of a key: "10.0.0.1", "tcp . 80-90".
func (s *Elements) Key(text string) (string, error) {
	if !s.Interval {
		key, err := s.Type.Key.Value(text)
		return string(key), err
	}
	first, last, err := s.Type.Key.Range(text)
	return string(first) + string(last), err
}

// KeyText is the reverse of Key.
func (s *Elements) KeyText(key string) string {
	first, last := s.split(key)
	if last == nil {
		return s.Type.Key.Format(first)
	}
	return s.Type.Key.FormatRange(first, last)
}

func (s *Elements) split(key string) (first, last []byte) {
	if !s.Interval {
		return []byte(key), nil
	}
	return []byte(key[:len(key)/2]), []byte(key[len(key)/2:])
}

// Value returns the value as Parse returns it. It fails if the set cannot have the value.
func (s *Elements) Value(text string) (string, error) {
	switch {
	case s.Type.Verdict:
		_, err := readVerdict(text)
		return text, err
	case s.Type.Data != nil:
		v, err := s.Type.Data.Value(text)
		return s.Type.Data.Format(v), err
	case text != "":
		return "", fmt.Errorf("value %q in a set", text)
	}
	return "", nil
}

// Add returns the requests that add elements, values by key. Adding an element that exists changes nothing.
func (s *Elements) Add(elements map[string]string) ([]netlink.Request, error) {
	var errs []error
	r := netlink.Request{Type: Subsystem | unix.NFT_MSG_NEWSETELEM, Flags: unix.NLM_F_CREATE}
	out := s.requests(r, slices.Sorted(maps.Keys(elements)), func(b *netlink.Buffer, key string) {
		errs = append(errs, s.appendValue(b, elements[key]))
	})
	return out, errors.Join(errs...)
}

// Delete returns the requests that delete the elements with the keys.
func (s *Elements) Delete(keys []string) []netlink.Request {
	r := netlink.Request{Type: Subsystem | unix.NFT_MSG_DELSETELEM}
	return s.requests(r, slices.Sorted(slices.Values(keys)), func(*netlink.Buffer, string) {})
}

// Flush returns the request that deletes all elements.
func (s *Elements) Flush() netlink.Request {
	return netlink.Request{Type: Subsystem | unix.NFT_MSG_DELSETELEM, Body: SetMessage(s.Family, s.Table, s.Set)}
}

// Dump lists the elements completely, for Parse.
func (s *Elements) Dump(c *netlink.Conn) ([][]byte, error) {
	return DumpElements(c, s.Family, s.Table, s.Set)
}

// requests distributes the keys among as many messages as they need. value appends what an element has besides its key.
func (s *Elements) requests(r netlink.Request, keys []string, value func(*netlink.Buffer, string)) (out []netlink.Request) {
	for len(keys) > 0 {
		b := SetMessage(s.Family, s.Table, s.Set)
		b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b *netlink.Buffer) {
			for ; len(keys) > 0 && len(*b) < maxElementList; keys = keys[1:] {
				s.appendElement(b, keys[0], value)
			}
		})
		r.Body = b
		out = append(out, r)
	}
	return out
}

// appendElement writes an element. An interval of a single field is two elements: its first value, and the value after
// its last one. The interval that ends with the highest value has no second element.
func (s *Elements) appendElement(b *netlink.Buffer, key string, value func(*netlink.Buffer, string)) {
	first, last := s.split(key)
	b.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) {
		appendData(b, unix.NFTA_SET_ELEM_KEY, first)
		if s.Interval && len(s.Type.Key) > 1 {
			appendData(b, elementKeyEnd, last)
		}
		value(b, key)
	})
	if after := successor(last); len(s.Type.Key) == 1 && after != nil {
		b.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) {
			appendData(b, unix.NFTA_SET_ELEM_KEY, after)
			b.Uint32BE(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		})
	}
}

func appendData(b *netlink.Buffer, typ uint16, v []byte) {
	b.Nest(typ, func(b *netlink.Buffer) { b.Bytes(unix.NFTA_DATA_VALUE, v) })
}

func (s *Elements) appendValue(b *netlink.Buffer, text string) error {
	switch {
	case s.Type.Verdict:
		v, err := readVerdict(text)
		b.Nest(unix.NFTA_SET_ELEM_DATA, v.append)
		return err
	case s.Type.Data != nil:
		v, err := s.Type.Data.Value(text)
		appendData(b, unix.NFTA_SET_ELEM_DATA, v)
		return err
	}
	return nil
}

// successor returns the next higher value, or nil after the highest one.
func successor(v []byte) []byte {
	out := bytes.Clone(v)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]++; out[i] != 0 {
			return out
		}
	}
	return nil
}

// predecessor returns the next lower value, or nil before zero.
func predecessor(v []byte) []byte {
	out := bytes.Clone(v)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i]--; out[i] != 0xff {
			return out
		}
	}
	return nil
}
