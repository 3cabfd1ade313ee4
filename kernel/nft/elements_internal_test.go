package nft

import (
	"maps"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

func codec(typ string, interval bool) *Elements {
	t, err := ParseSetType(typ)
	if err != nil {
		panic(err)
	}
	return &Elements{Family: "inet", Table: "t", Set: "s", Type: t, Interval: interval}
}

// TestElementsReadBack checks that keys and values are decoded as they were encoded.
func TestElementsReadBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ      string
		interval bool
		elements map[string]string
	}{
		{"ipv4_addr", false, map[string]string{"10.0.0.1": "", "255.255.255.255": ""}},
		{"ipv4_addr", true, map[string]string{"0.0.0.0-0.0.0.9": "", "10.0.0.1": "", "10.0.0.2-10.0.0.3": "", "128.0.0.0-255.255.255.255": ""}},
		{"ipv6_addr", true, map[string]string{"::-::ff": "", "fd00::ffff-fd00::1:0": "", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": ""}},
		{"inet_proto . inet_service", true, map[string]string{"tcp . 80-90": "", "udp . 53": "", "132 . 0-65535": "", "0-5 . 1": ""}},
		{"ifname . inet_proto", true, map[string]string{"a-b . tcp": ""}},
		{"icmpv6_type", false, map[string]string{"nd-redirect": "", "echo-request": ""}},
		{"ipv4_addr : verdict", false, map[string]string{"10.0.0.1": "drop", "10.0.0.2": "jump a-b", "10.0.0.3": "goto c"}},
		{"ipv4_addr : inet_service", true, map[string]string{"10.0.0.1-10.0.0.9": "80"}},
		{"inet_service : ipv4_addr . inet_service", false, map[string]string{"80": "10.0.0.1 . 8080"}},
	} {
		s := codec(c.typ, c.interval)
		byKey := map[string]string{}
		for text, value := range c.elements {
			key, err := s.Key(text)
			if err != nil {
				t.Fatal(err)
			}
			byKey[key] = value
			want := strings.Replace(text, "132 ", "sctp ", 1)
			if got := s.KeyText(key); got != want {
				t.Errorf("%s: key %q is decoded as %q", c.typ, text, got)
			}
		}
		got, regular := s.Parse(bodies(t, s, byKey))
		if !maps.Equal(got, byKey) || !regular {
			t.Errorf("%s: got %q, want %q; regular: %v", c.typ, got, byKey, regular)
		}
	}
}

func bodies(t *testing.T, s *Elements, elements map[string]string) (out [][]byte) {
	t.Helper()
	reqs, err := s.Add(elements)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reqs {
		out = append(out, r.Body)
	}
	return out
}

// TestElementsOfManyMessages checks that no attribute exceeds its 16 bits of length.
func TestElementsOfManyMessages(t *testing.T) {
	t.Parallel()
	s := codec("ipv6_addr . ipv6_addr", true)
	all := map[string]string{}
	for i := range 5000 {
		key := make([]byte, 64)
		key[0], key[1], key[32] = byte(i), byte(i>>8), 0xff
		all[string(key)] = ""
	}
	if got, _ := s.Parse(bodies(t, s, all)); !maps.Equal(got, all) {
		t.Errorf("%d elements of %d were decoded", len(got), len(all))
	}
}

func TestInvalidElements(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ        string
		interval   bool
		key, value string
	}{
		{"ipv4_addr", false, "10.0.0.1-10.0.0.2", ""}, {"ipv4_addr", true, "10.0.0.2-10.0.0.1", ""}, {"ipv4_addr", true, "fd00::1", ""},
		{"ipv4_addr", true, "10.0.0.1-", ""}, {"ipv4_addr", false, "10.0.0.1", "drop"}, {"ipv4_addr : verdict", false, "10.0.0.1", "jump"},
		{"ipv4_addr : verdict", false, "10.0.0.1", "drop x"}, {"ipv4_addr : verdict", false, "10.0.0.1", ""},
		{"inet_proto . inet_service", true, "tcp", ""}, {"inet_proto . inet_service", true, "tcp . 80-70", ""},
		{"inet_proto . inet_service", true, "tcp . 80 . 90", ""}, {"inet_service : ipv4_addr", false, "80", "x"},
	} {
		s := codec(c.typ, c.interval)
		_, keyErr := s.Key(c.key)
		_, valueErr := s.Value(c.value)
		if keyErr == nil && valueErr == nil {
			t.Errorf("%s accepts %q : %q", c.typ, c.key, c.value)
		}
	}
}

// TestIrregularElements checks that Parse reports what Add does not write.
func TestIrregularElements(t *testing.T) {
	t.Parallel()
	bound := func(last byte, flags uint32, attrs ...uint16) []byte {
		b := SetMessage("inet", "t", "s")
		b.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b *netlink.Buffer) {
			b.Nest(unix.NFTA_LIST_ELEM, func(b *netlink.Buffer) {
				appendData(b, unix.NFTA_SET_ELEM_KEY, []byte{0, 0, 0, last})
				b.Uint32BE(unix.NFTA_SET_ELEM_FLAGS, flags)
				for _, typ := range attrs {
					b.Bytes(typ, Comment("by hand"))
				}
			})
		})
		return b
	}
	const end = unix.NFT_SET_ELEM_INTERVAL_END
	for name, c := range map[string]struct {
		list    [][]byte
		regular bool
	}{
		"a range, and the end at zero that nft writes": {[][]byte{bound(0, end), bound(5, 0), bound(7, end)}, true},
		"two starts":           {[][]byte{bound(5, 0), bound(7, 0), bound(9, end)}, false},
		"an end without start": {[][]byte{bound(5, end)}, false},
		"a comment":            {[][]byte{bound(5, 0, unix.NFTA_SET_ELEM_USERDATA), bound(7, end)}, false},
		"a timeout":            {[][]byte{bound(5, 0, unix.NFTA_SET_ELEM_TIMEOUT), bound(7, end)}, false},
		"a counter":            {[][]byte{bound(5, 0, unix.NFTA_SET_ELEM_EXPR), bound(7, end)}, false},
		"several counters":     {[][]byte{bound(5, 0, elementExpressions), bound(7, end)}, false},
		"two starts at zero":   {[][]byte{bound(0, 0), bound(0, 0)}, false},
	} {
		if _, regular := codec("ipv4_addr", true).Parse(c.list); regular != c.regular {
			t.Errorf("%s: regular is %v", name, regular)
		}
	}
}
