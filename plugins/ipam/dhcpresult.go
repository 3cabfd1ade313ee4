package ipam

import (
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
)

// dhcpResult decodes the daemon's result: the gob form of a result of specification 1.0.0 or later, with addresses as
// bytes.
func dhcpResult(body map[string]any) (*cni.Result, error) {
	r := &cni.Result{}
	for _, e := range list(body["IPs"]) {
		p, err := gobPrefix(e["Address"])
		if err != nil {
			return nil, err
		}
		r.IPs = append(r.IPs, cni.IP{Address: p, Gateway: gobAddr(e["Gateway"])})
	}
	for _, e := range list(body["Routes"]) {
		p, err := gobPrefix(e["Dst"])
		if err != nil {
			return nil, err
		}
		r.Routes = append(r.Routes, cni.Route{Dst: p, GW: gobAddr(e["GW"]), MTU: number(e["MTU"]), AdvMSS: number(e["AdvMSS"]),
			Priority: number(e["Priority"]), Table: optionalInt(e["Table"]), Scope: optionalInt(e["Scope"])})
	}
	if dns, ok := body["DNS"].(map[string]any); ok {
		r.DNS.Domain, _ = dns["Domain"].(string)
		r.DNS.Nameservers, r.DNS.Search, r.DNS.Options = texts(dns["Nameservers"]), texts(dns["Search"]), texts(dns["Options"])
	}
	return r, nil
}

func list(v any) (out []map[string]any) {
	l, _ := v.([]any)
	for _, e := range l {
		m, _ := e.(map[string]any)
		out = append(out, m) // a nil map reads as one without values
	}
	return out
}

func texts(v any) (out []string) {
	l, _ := v.([]any)
	for _, e := range l {
		s, _ := e.(string)
		out = append(out, s)
	}
	return out
}

func number(v any) int {
	n, _ := v.(int64)
	return int(n)
}

// optionalInt returns an optional number.
func optionalInt(v any) *int {
	n, ok := v.(int64)
	if !ok {
		return nil
	}
	i := int(n)
	return &i
}

// gobAddr decodes a net.IP.
func gobAddr(v any) netip.Addr {
	b, _ := v.([]byte)
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// gobPrefix decodes a net.IPNet: address and mask of the same length, ones before zeros.
func gobPrefix(v any) (netip.Prefix, error) {
	m, _ := v.(map[string]any)
	mask, _ := m["Mask"].([]byte)
	ones := 0
	for i, b := range mask {
		n := bits.LeadingZeros8(^b)
		if b<<n != 0 || n > 0 && ones < 8*i {
			ones = -1
			break
		}
		ones += n
	}
	p := netip.PrefixFrom(gobAddr(m["IP"]), ones)
	if len(mask) == 0 || !p.IsValid() || len(mask)*8 != p.Addr().BitLen() {
		return p, fmt.Errorf("%v is not an address with a prefix length", m)
	}
	return p, nil
}
