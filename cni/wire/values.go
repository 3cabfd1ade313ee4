package wire

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cni/rawjson"
)

// decoder reads values and keeps the first invalid one.
type decoder struct {
	newer   bool     // the result is in 1.0.0 or newer
	at      []string // keys and indices down to the value being read
	bad     []string // at, when problem was set
	problem string
}

const (
	wantPrefix = "want an address with its prefix length, like 10.1.0.2/16 or fd00::2/64"
	wantAddr   = "want an address, like 10.1.0.1 or fd00::1"
)

func (d *decoder) push(step string) { d.at = append(d.at, step) }
func (d *decoder) pop()             { d.at = d.at[:len(d.at)-1] }

func (d *decoder) refuse(key, problem string) {
	if d.problem == "" {
		d.bad, d.problem = append(append([]string(nil), d.at...), key), problem
	}
}

// path returns the path of the invalid value: "ips[0].address".
func (d *decoder) path() string {
	return strings.ReplaceAll(strings.Join(d.bad, "."), ".[", "[")
}

// each reads an array of objects.
func each[T any](d *decoder, m rawjson.Member, element func([]rawjson.Member) T) []T {
	if isNull(m.Raw) {
		return nil
	}
	raws, err := rawjson.Elements(m.Raw)
	if err != nil {
		d.refuse(m.Key, "want a list of objects")
		return nil
	}
	d.push(m.Key)
	defer d.pop()
	list := make([]T, 0, len(raws))
	for i, raw := range raws {
		index := "[" + strconv.Itoa(i) + "]"
		members, err := rawjson.Members(raw.Raw)
		if err != nil {
			d.refuse(index, "want an object")
			continue
		}
		d.push(index)
		list = append(list, element(members))
		d.pop()
	}
	return list
}

func (d *decoder) object(m rawjson.Member) []rawjson.Member {
	if isNull(m.Raw) {
		return nil
	}
	members, err := rawjson.Members(m.Raw)
	if err != nil {
		d.refuse(m.Key, "want an object")
	}
	return members
}

func (d *decoder) str(m rawjson.Member) string {
	if isNull(m.Raw) {
		return ""
	}
	s, err := rawjson.Unquote(m.Raw)
	if err != nil {
		d.refuse(m.Key, "want a string")
	}
	return s
}

func (d *decoder) strs(m rawjson.Member) []string {
	if isNull(m.Raw) {
		return nil
	}
	raws, err := rawjson.Elements(m.Raw)
	if err != nil {
		d.refuse(m.Key, "want a list of strings")
		return nil
	}
	list := make([]string, 0, len(raws))
	for _, raw := range raws {
		s, err := rawjson.Unquote(raw.Raw)
		if err != nil {
			d.refuse(m.Key, "want a list of strings")
		}
		list = append(list, s)
	}
	return list
}

func (d *decoder) num(m rawjson.Member) int {
	if isNull(m.Raw) {
		return 0
	}
	n, err := strconv.Atoi(string(m.Raw))
	if err != nil {
		d.refuse(m.Key, "want a whole number")
	}
	return n
}

func (d *decoder) ptr(m rawjson.Member) *int {
	if isNull(m.Raw) {
		return nil
	}
	n := d.num(m)
	return &n
}

// addr reads an address; "" means none, as in net.IP.
func (d *decoder) addr(m rawjson.Member) netip.Addr {
	s := d.str(m)
	if s == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		d.refuse(m.Key, wantAddr)
	}
	return a.Unmap()
}

// prefix keeps the host bits. It converts an IPv4 address in IPv6 form to IPv4.
func (d *decoder) prefix(m rawjson.Member) netip.Prefix { return UnmapPrefix(d.destination(m)) }

// destination reads a prefix as it is: a route to ::ffff:10.1.0.0/120 is one of IPv6.
func (d *decoder) destination(m rawjson.Member) netip.Prefix {
	s := d.str(m)
	p, err := netip.ParsePrefix(s)
	if err != nil {
		d.refuse(m.Key, wantPrefix)
		return netip.Prefix{}
	}
	return p
}

// UnmapPrefix converts an IPv4 prefix in IPv6 form (::ffff:10.1.0.7/120) to IPv4 and returns others unchanged.
func UnmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
