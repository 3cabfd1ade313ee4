package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Text is the reverse of Compile: it returns the text of a rule, from the attributes that the kernel lists. It knows the
// rules of network policy. The error of any other rule says how far Text got.
func Text(family string, p []byte) (string, error) {
	t := &textReader{family: family}
	var err error
	netlink.EachAttr(netlink.Attr(p, unix.NFTA_RULE_EXPRESSIONS), func(_ uint16, x []byte) {
		if err == nil {
			err = t.expr(netlink.Text(netlink.Attr(x, unix.NFTA_EXPR_NAME)), netlink.Attr(x, unix.NFTA_EXPR_DATA))
		}
	})
	text := strings.Join(t.out, " ")
	if err != nil {
		return "", fmt.Errorf("after %q: %w", text, err)
	}
	// This also finds what the reader does not look at, such as flags.
	if exprs, err := Compile(FamilyNumber(family), text); err != nil || !SameRule(p, exprs) {
		return "", fmt.Errorf("it is not %q", text)
	}
	return text, nil
}

// textReader turns expressions into statements.
type textReader struct {
	family string
	out    []string // statements
	fields []*field // loaded, and not compared yet
	mask   []byte   // applied to the last one
}

var errUnknown = errors.New("an expression that is not known") // a constant; nothing assigns it

func (t *textReader) expr(name string, p []byte) error {
	switch name {
	case "payload", "meta", "ct", "fib":
		_, loads, _ := loaded(t.family, name, p)
		f := fieldByName(loads)
		if f == nil {
			return errUnknown
		}
		t.fields = append(t.fields, f)
	case "bitwise":
		t.mask = netlink.Attr(netlink.Attr(p, unix.NFTA_BITWISE_MASK), unix.NFTA_DATA_VALUE)
	case "cmp":
		return t.cmp(netlink.Uint32BE(netlink.Attr(p, unix.NFTA_CMP_OP)), netlink.Attr(netlink.Attr(p, unix.NFTA_CMP_DATA), unix.NFTA_DATA_VALUE))
	case "lookup":
		t.lookup(p)
	case "counter":
		t.add("counter")
	case "limit":
		t.limit(p)
	case "log":
		t.add(logText(p))
	case "immediate":
		t.add(verdictText(netlink.Attr(netlink.Attr(p, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)))
	default:
		return errUnknown
	}
	return nil
}

func (t *textReader) add(statement string) { t.out = append(t.out, statement) }

// match adds a comparison of the loaded fields. It removes the checks before it that Compile adds on its own.
func (t *textReader) match(with string) {
	var names []string
	for _, f := range t.fields {
		names = append(names, f.name)
	}
	t.withoutCheck("meta l4proto", func(f *field) bool { return f.above != "" })
	t.withoutCheck("meta nfproto", func(f *field) bool { return f.family != 0 })
	t.add(strings.Join(names, " . ") + " " + with)
	t.fields, t.mask = nil, nil
}

func (t *textReader) withoutCheck(check string, needs func(*field) bool) {
	n := len(t.out)
	for _, f := range t.fields {
		if n > 0 && needs(f) && strings.HasPrefix(t.out[n-1], check+" ") {
			t.out = t.out[:n-1]
			return
		}
	}
}

// cmp adds a comparison with a value.
func (t *textReader) cmp(op uint32, value []byte) error {
	if len(t.fields) != 1 {
		return errUnknown
	}
	f, not := t.fields[0], ""
	if op == unix.NFT_CMP_NEQ {
		not = "!= "
	}
	switch f.name {
	case "meta nfproto":
		t.match(map[byte]string{unix.AF_INET: "ipv4", unix.AF_INET6: "ipv6"}[netlink.Uint8(value)])
		return nil
	case "ct state":
		t.match("established,related")
		return nil
	case "fib saddr type", "fib daddr type":
		t.match("local")
		return nil
	}
	typ, err := dataTypeByName(f.typ)
	if err != nil || len(value) != typ.size || t.mask != nil {
		return errUnknown
	}
	t.match(not + typ.format(value))
	return nil
}

func (t *textReader) lookup(p []byte) {
	with := "@" + netlink.Text(netlink.Attr(p, unix.NFTA_LOOKUP_SET))
	if netlink.Attr(p, unix.NFTA_LOOKUP_DREG) != nil {
		with = "vmap " + with
	}
	if netlink.Uint32BE(netlink.Attr(p, unix.NFTA_LOOKUP_FLAGS))&unix.NFT_LOOKUP_F_INV != 0 {
		with = "!= " + with
	}
	t.match(with)
}

func (t *textReader) limit(p []byte) {
	over := ""
	if netlink.Uint32BE(netlink.Attr(p, unix.NFTA_LIMIT_FLAGS))&unix.NFT_LIMIT_F_INV != 0 {
		over = "over "
	}
	var rate uint64
	if v := netlink.Attr(p, unix.NFTA_LIMIT_RATE); len(v) == 8 {
		rate = binary.BigEndian.Uint64(v)
	}
	t.add(fmt.Sprintf("limit rate %s%d/second burst %d packets", over, rate, netlink.Uint32BE(netlink.Attr(p, unix.NFTA_LIMIT_BURST))))
}

func logText(p []byte) string {
	prefix := netlink.Text(netlink.Attr(p, unix.NFTA_LOG_PREFIX))
	if prefix != "" {
		prefix = `prefix "` + prefix + `" `
	}
	var group uint16
	if v := netlink.Attr(p, unix.NFTA_LOG_GROUP); len(v) == 2 {
		group = binary.BigEndian.Uint16(v)
	}
	return fmt.Sprintf("log %sgroup %d", prefix, group)
}
