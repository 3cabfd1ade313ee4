package dhcpd

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestUnusableOffers checks that an ADD fails if a server offers an address that no host can use, also if the mask of the
// acknowledgement makes it one.
func TestUnusableOffers(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	var mu sync.Mutex
	var offer, mask net.IP
	n, _ := fake(t, serverPort, func(q, a *dhcpv4.DHCPv4, _ bool) bool {
		mu.Lock()
		defer mu.Unlock()
		if a.YourIPAddr = offer; mask != nil && q.MessageType() == dhcpv4.MessageTypeRequest {
			a.Options[1] = mask
		}
		return true
	})
	d := start(t, Options{ResendTimeout: time.Second})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	for _, c := range []struct {
		offer, mask net.IP
		want        string
	}{
		{net.IPv4(224, 0, 0, 5), nil, "10.0.0.1 offers 224.0.0.5/24, which no host can use"},
		{net.IPv4(127, 0, 0, 1), nil, "10.0.0.1 offers 127.0.0.1/24, which no host can use"},
		{net.IPv4(0, 1, 2, 3), nil, "10.0.0.1 offers 0.1.2.3/24, which no host can use"},
		{net.IPv4bcast, nil, "10.0.0.1 offers 255.255.255.255/24, which no host can use"},
		{net.IPv4(10, 0, 0, 0), nil, "10.0.0.1 offers 10.0.0.0/24, which no host can use"},
		{net.IPv4(10, 0, 0, 255), nil, "10.0.0.1 offers 10.0.0.255/24, which no host can use"},
		{net.IPv4(10, 0, 0, 63), net.IPv4(255, 255, 255, 192).To4(), "10.0.0.1 offers 10.0.0.63/26, which no host can use"},
	} {
		mu.Lock()
		offer, mask = c.offer, c.mask
		mu.Unlock()
		if res, err := d.Allocate(t.Context(), r); !errorHas(err, c.want) {
			t.Errorf("%v, %v, want %s", res, err, c.want)
		}
	}
}

// TestUnusableAddresses6 checks that no address of a DHCPv6 server, and no prefix of a router, is one that no host can use.
func TestUnusableAddresses6(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"::", "::1", "ff02::5", "fe80::5", "::ffff:10.0.0.5", "fd00::5"} {
		usable := text == "fd00::5"
		a := netip.MustParseAddr(text)
		ia := &dhcpv6.OptIANA{IaId: iaid()}
		ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.AsSlice(), ValidLifetime: time.Hour})
		m := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeAdvertise}
		m.AddOption(ia)
		if got := address6(m); got.IsValid() != usable {
			t.Errorf("DHCPv6 with %s: %v", text, got)
		}
		ra, err := parseAdvertisement(advert(30, prefixOption(text, 0xc0, 60)))
		if err != nil || text != "::1" && (len(ra.prefixes) > 0) != usable {
			t.Errorf("advertisement of %s: %+v, %v", text, ra, err)
		}
	}
}

// TestUnusableNames checks that a domain with a line break does not reach resolv.conf(5), and neither does the address of a
// name server that no host can have.
func TestUnusableNames(t *testing.T) {
	t.Parallel()
	m := &dhcpv4.DHCPv4{Options: dhcpv4.Options{6: {0, 0, 0, 0, 224, 0, 0, 1, 10, 0, 0, 53}, 15: []byte("a\nnameserver 192.0.2.1")}}
	if d := dns4(m); d.Domain != "" || len(d.Nameservers) != 1 || d.Nameservers[0] != "10.0.0.53" {
		t.Errorf("%+v", d)
	}
}
