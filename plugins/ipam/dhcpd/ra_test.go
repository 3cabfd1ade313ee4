package dhcpd

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// advert returns an advertisement with a lifetime and options.
func advert(lifetime byte, options ...[]byte) []byte {
	b := []byte{routerAdvertisement, 0, 0, 0, 64, 0, 0, lifetime, 0, 0, 0, 0, 0, 0, 0, 0}
	return append(b, slices.Concat(options...)...)
}

// prefixOption returns an option that announces a /64 for some seconds. The flags are 0x80 (on-link) and 0x40
// (autonomous).
func prefixOption(text string, flags, seconds byte) []byte {
	b := []byte{optPrefixInfo, 4, 64, flags, 0, 0, 0, seconds, 0, 0, 0, seconds, 0, 0, 0, 0}
	return append(b, netip.MustParseAddr(text).AsSlice()...)
}

func TestParseAdvertisement(t *testing.T) {
	t.Parallel()
	rdnss := append([]byte{optRDNSS, 3, 0, 0, 0, 0, 0, 9}, netip.MustParseAddr("fd00::53").AsSlice()...)
	dnssl := []byte("\x1f\x03\x00\x00\x00\x00\x00\x09\x03six\x07example\x00\x00\x00\x00")
	route := []byte{optRouteInfo, 2, 48, 0, 0, 0, 0, 8, 0xfd, 0, 0, 9, 0, 0, 0xff, 0xff}
	a, err := parseAdvertisement(advert(30, []byte{1, 1, 2, 0, 0, 0, 0, 1}, prefixOption("fd00:7::1", 0xc0, 60), prefixOption("fe80::", 0xc0, 60), rdnss, dnssl, route))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(a.lifetime, a.dns, a.search)
	for _, p := range a.prefixes {
		got += fmt.Sprint(" ", p.prefix, p.onLink, p.auto, p.valid, p.preferred)
	}
	for _, r := range a.routes {
		got += fmt.Sprint(" ", r.prefix, r.lifetime)
	}
	if want := "30 [fd00::53] [six.example] fd00:7::/64 true true 60 60 fd00:9::/48 8"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for name, b := range map[string][]byte{
		"short": advert(1)[:15], "another type": append([]byte{135}, advert(1)[1:]...),
		"an option without a length": advert(1, []byte{1, 0, 0, 0, 0, 0, 0, 0}), "a truncated option": advert(1, []byte{1, 2, 0, 0, 0, 0, 0, 0}),
	} {
		if a, err := parseAdvertisement(b); err == nil {
			t.Errorf("%s: %v", name, a)
		}
	}
}

// TestLifetimesOfOptions checks that DNS options count from a lifetime of one second, up to the longest.
func TestLifetimesOfOptions(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[uint32]int{0: 0, 1: 1, 256: 1, 1 << 24: 1, infinite: 1} {
		life := binary.BigEndian.AppendUint32(nil, seconds)
		rdnss := slices.Concat([]byte{optRDNSS, 3, 0, 0}, life, netip.MustParseAddr("fd00::53").AsSlice())
		dnssl := slices.Concat([]byte{optDNSSL, 3, 0, 0}, life, []byte("\x03six\x07example\x00\x00\x00\x00"))
		if a, err := parseAdvertisement(advert(30, rdnss, dnssl)); err != nil || len(a.dns) != want || len(a.search) != want {
			t.Errorf("%d s: %v, %v, %v", seconds, a.dns, a.search, err)
		}
	}
}

func FuzzParseAdvertisement(f *testing.F) {
	f.Add(advert(30, prefixOption("fd00:7::", 0xc0, 60)))
	f.Add(advert(0, []byte("\x1f\x03\x00\x00\x00\x00\x00\x09\x03six\x07example\x00\x00\x00\x00")))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAdvertisement(b)
		if err != nil {
			return
		}
		p := testRouters()
		p.process(time.Hour, a, netip.MustParseAddr("fe80::1"), &link{mac: net.HardwareAddr{2, 0, 0, 0, 0, 5}})
		for _, ip := range p.valid(time.Hour).IPs {
			if ip.Address.Bits() != 64 || !ip.Address.IsValid() {
				t.Errorf("address %v", ip)
			}
		}
	})
}

func testRouters() *routers {
	return &routers{client: client{conf: &addr.DHCPConf{}, o: &Options{}, mu: &sync.Mutex{}}}
}

// TestProcessAdvertisement checks that the first advertisement sets the configuration, and that later ones only change
// lifetimes, until the router has gone. Nobody can take an address away by an advertisement.
func TestProcessAdvertisement(t *testing.T) {
	t.Parallel()
	p := testRouters()
	l, from := &link{mac: net.HardwareAddr{2, 0, 0, 0, 0, 5}}, netip.MustParseAddr("fe80::1")
	hear := func(at time.Duration, from netip.Addr, b []byte) bool {
		a, err := parseAdvertisement(b)
		if err != nil {
			t.Fatal(err)
		}
		return p.process(at*time.Second, a, from, l)
	}
	holds := func(at time.Duration) string { return strings.Join(p.valid(at*time.Second).describe(), ", ") }
	if hear(100, from, advert(0)) {
		t.Error("an empty advertisement was accepted")
	}
	if !hear(100, from, advert(30, prefixOption("fd00:7::", 0xc0, 60))) || holds(101) != "fd00:7::ff:fe00:5, route to ::/0" {
		t.Errorf("holds %s", holds(101))
	}
	if p.Term.Renew != 115*time.Second || p.Term.Expire != 130*time.Second {
		t.Errorf("term %+v", p.Term)
	}
	other := netip.MustParseAddr("fe80::2")
	if hear(125, other, advert(30)) {
		t.Error("another router's advertisement was accepted")
	}
	if got := holds(140); got != "fd00:7::ff:fe00:5" {
		t.Errorf("after the router's lifetime: %s", got)
	}
	if !hear(141, from, advert(30, prefixOption("fd00:8::", 0xc0, 60))) || holds(142) != "fd00:7::ff:fe00:5, route to ::/0" {
		t.Errorf("the router returned with another prefix: %s", holds(142))
	}
	if !hear(143, from, advert(0, prefixOption("fd00:7::", 0xc0, 0))) || holds(144) != "fd00:7::ff:fe00:5" || holds(161) != "" {
		t.Errorf("after everything was withdrawn: %s", holds(144))
	}
	if !hear(145, other, advert(250)) || holds(146) != "fd00:7::ff:fe00:5, route to ::/0" || p.gateway() != other {
		t.Errorf("another router after the first one: %s by %s", holds(146), p.gateway())
	}
	p.process(146*time.Second, prefixFor(20000), other, l)
	if p.process(147*time.Second, prefixFor(10), other, l); !strings.HasPrefix(holds(147+7199), "fd00:7::") || strings.HasPrefix(holds(147+7201), "fd00:7::") {
		t.Error("an advertisement shortened a lifetime to another one than two hours")
	}
}

// TestRepeatedOptions checks that an option which an advertisement has twice counts once. The kernel rejects an address
// that the interface has.
func TestRepeatedOptions(t *testing.T) {
	t.Parallel()
	p := testRouters()
	a, err := parseAdvertisement(advert(30, prefixOption("fd00:7::", 0xc0, 60), prefixOption("fd00:7::", 0xc0, 60), prefixOption("fd00:7::", 0x40, 50)))
	if err != nil {
		t.Fatal(err)
	}
	p.process(time.Second, a, netip.MustParseAddr("fe80::1"), &link{mac: net.HardwareAddr{2, 0, 0, 0, 0, 5}})
	if got := p.valid(time.Second); len(got.IPs) != 1 || len(got.OnLink) != 1 {
		t.Errorf("addresses %v, on-link prefixes %v", got.IPs, got.OnLink)
	}
}

// prefixFor returns an advertisement of a prefix with a lifetime in seconds, by no default router.
func prefixFor(seconds uint32) *advertisement {
	return &advertisement{prefixes: []prefixInfo{{prefix: netip.MustParsePrefix("fd00:7::/64"), onLink: true, auto: true, valid: seconds}}}
}

// TestOddLifetimes checks lifetimes of decades, and a default route that an option has, and the header not.
func TestOddLifetimes(t *testing.T) {
	t.Parallel()
	l, from := &link{mac: net.HardwareAddr{2, 0, 0, 0, 0, 5}}, netip.MustParseAddr("fe80::1")
	for _, seconds := range []uint32{1, 1_030_000_000, 1_500_000_000, 2_050_000_000, infinite - 1} {
		p, now := testRouters(), time.Hour
		if !p.process(now, prefixFor(seconds), from, l) {
			t.Fatalf("%d s", seconds)
		}
		if got := p.Term.phase(now); got != idle || p.Term.next(now, false) <= now {
			t.Errorf("%d s: phase %d, term %+v", seconds, got, p.Term)
		}
	}
	p := testRouters()
	a := &advertisement{routes: []routeInfo{{netip.PrefixFrom(netip.IPv6Unspecified(), 0), 1800}}}
	if !p.process(time.Hour, a, from, l) || len(p.valid(time.Hour).Routes) != 1 || p.Term.phase(time.Hour) != idle {
		t.Errorf("a default route by an option: %+v, term %+v", p.Items, p.Term)
	}
}

// TestSolicitsAgainAfterSilence checks that routers that do not answer once are asked again soon, also if what they
// advertised before does not end.
func TestSolicitsAgainAfterSilence(t *testing.T) {
	t.Parallel()
	for _, lifetime := range []uint32{infinite, 30 * 24 * 3600} {
		p := &routers{client: client{conf: &addr.DHCPConf{}, mu: new(sync.Mutex)}}
		a := &advertisement{prefixes: []prefixInfo{{netip.MustParsePrefix("fd00:7::/64"), true, true, lifetime, lifetime}}}
		if !p.process(0, a, netip.MustParseAddr("fe80::1"), &link{mac: net.HardwareAddr{2, 0, 0, 0, 0, 1}}) {
			t.Fatal("the advertisement is not usable")
		}
		due := p.Term.next(0, false)
		if again := p.Term.next(due, true); due > askAgain || again > due+askAgain {
			t.Errorf("lifetime %d: solicits after %v, and without an answer after %v more", lifetime, due, again-due)
		}
	}
}
