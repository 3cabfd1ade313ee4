package dhcpd

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	addr "github.com/fairlead/fairlead/plugins/ipam"
)

func TestRoutes4(t *testing.T) {
	t.Parallel()
	router := []byte{10, 0, 0, 1, 10, 0, 0, 2}
	for _, c := range []struct {
		name    string
		options dhcpv4.Options
		want    string
	}{
		{"none", dhcpv4.Options{}, ""},
		{"router", dhcpv4.Options{3: router}, "0.0.0.0/0 via 10.0.0.1; "},
		{"classless takes precedence", dhcpv4.Options{3: router, 33: {10, 8, 0, 1, 10, 0, 0, 8}, 121: {16, 10, 9, 10, 0, 0, 7}}, "10.9.0.0/16 via 10.0.0.7; "},
		{"classless of every length", dhcpv4.Options{121: {0, 10, 0, 0, 1, 8, 11, 10, 0, 0, 2, 23, 10, 2, 3, 10, 0, 0, 3, 32, 10, 9, 9, 9, 0, 0, 0, 0}},
			"10.9.9.9/32 on the link; 0.0.0.0/0 via 10.0.0.1; 11.0.0.0/8 via 10.0.0.2; 10.2.2.0/23 via 10.0.0.3; "},
		{"router elsewhere", dhcpv4.Options{3: {172, 31, 1, 1}}, "172.31.1.1/32 on the link; 0.0.0.0/0 via 172.31.1.1; "},
		{"classless elsewhere", dhcpv4.Options{121: {0, 172, 31, 1, 1, 32, 172, 31, 1, 2, 0, 0, 0, 0, 8, 12, 172, 31, 1, 2}},
			"172.31.1.2/32 on the link; 172.31.1.1/32 on the link; 0.0.0.0/0 via 172.31.1.1; 12.0.0.0/8 via 172.31.1.2; "},
		{"classless invalid", dhcpv4.Options{3: router, 121: {33, 10, 9, 1, 1, 1, 10, 0, 0, 7}}, "0.0.0.0/0 via 10.0.0.1; "},
		{"classless truncated", dhcpv4.Options{3: router, 121: {16, 10, 9, 10, 0, 0}}, "0.0.0.0/0 via 10.0.0.1; "},
		{"static", dhcpv4.Options{33: {10, 8, 0, 1, 10, 0, 0, 8, 11, 0, 0, 0, 10, 0, 0, 9, 0, 0, 0, 0, 10, 0, 0, 9, 192, 168, 1, 0, 10, 0, 0, 5, 1, 2}},
			"10.8.0.1/32 via 10.0.0.8; 11.0.0.0/8 via 10.0.0.9; 192.168.1.0/24 via 10.0.0.5; "},
		{"no router", dhcpv4.Options{3: {0, 0, 0, 0}}, ""},
		{"a second router", dhcpv4.Options{3: {0, 0, 0, 0, 224, 0, 0, 1, 10, 0, 0, 2}}, "0.0.0.0/0 via 10.0.0.2; "},
		{"the own address as router", dhcpv4.Options{3: {10, 0, 0, 20}}, ""},
		{"broadcast addresses", dhcpv4.Options{3: {10, 0, 0, 255, 255, 255, 255, 255}}, ""},
		{"classless without a host", dhcpv4.Options{121: {0, 127, 0, 0, 1, 8, 12, 10, 0, 0, 0, 8, 13, 10, 0, 0, 3}}, "13.0.0.0/8 via 10.0.0.3; "},
		{"classless twice", dhcpv4.Options{121: {8, 12, 10, 0, 0, 1, 8, 12, 10, 0, 0, 2}}, "12.0.0.0/8 via 10.0.0.1; "},
		{"the own subnet", dhcpv4.Options{121: {24, 10, 0, 0, 10, 0, 0, 1}}, ""},
		{"static without a router", dhcpv4.Options{33: {10, 8, 0, 1, 0, 0, 0, 0}}, ""},
	} {
		got := ""
		routes, _ := routes4(&dhcpv4.DHCPv4{Options: c.options}, netip.MustParsePrefix("10.0.0.20/24"), 3)
		for _, r := range routes {
			via := "via " + r.GW.String()
			if r.Scope != nil {
				via = "on the link"
			}
			got += fmt.Sprintf("%s %s; ", r.Dst, via)
			if r.Priority != 3 {
				t.Errorf("%s: priority %d", c.name, r.Priority)
			}
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func FuzzRoutes4(f *testing.F) {
	f.Add([]byte{16, 10, 9, 10, 0, 0, 7, 0, 10, 0, 0, 1})
	f.Add([]byte{10, 8, 0, 1, 10, 0, 0, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		classless, ok := parseClassless(b)
		if ok != (len(classless) > 0) {
			t.Errorf("ok is %v, with %v", ok, classless)
		}
		for _, r := range append(classless, parseStatic(b)...) {
			if !r.dst.IsValid() || r.dst != r.dst.Masked() || !r.gw.IsValid() {
				t.Errorf("%v", r)
			}
		}
	})
}

// TestOddMasks checks the prefix length for values that are no mask: the address's class decides, as without a mask.
func TestOddMasks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mask []byte
		want string
	}{
		{[]byte{255, 255, 255, 0}, "10.0.0.5/24"},
		{[]byte{255, 255, 255, 255}, "10.0.0.5/32"},
		{nil, "10.0.0.5/8"},
		{[]byte{255, 0, 255, 0}, "10.0.0.5/8"},
		{[]byte{0, 255, 255, 255}, "10.0.0.5/8"},
		{[]byte{0, 0, 0, 0}, "10.0.0.5/8"},
		{[]byte{255, 255}, "10.0.0.5/8"},
	} {
		m := &dhcpv4.DHCPv4{YourIPAddr: net.IPv4(10, 0, 0, 5), Options: dhcpv4.Options{}}
		if c.mask != nil {
			m.Options[uint8(dhcpv4.OptionSubnetMask.Code())] = c.mask
		}
		p := &v4{client: client{conf: &addr.DHCPConf{}}, Added: m.ToBytes()}
		if got := p.held().IPs[0].Address.String(); got != c.want {
			t.Errorf("mask %v: %s, want %s", c.mask, got, c.want)
		}
	}
}
