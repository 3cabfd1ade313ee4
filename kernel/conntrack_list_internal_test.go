package kernel

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netlink"
)

func openConntrack(t testing.TB) *Conntrack {
	t.Helper()
	c, err := OpenConntrack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// addEntry adds an entry from a source to a destination, whose replies come from another address: destination NAT.
func addEntry(protocol uint8, src, dst, replySrc string, parent netlink.Buffer) netlink.Request {
	tuple := func(from, to netip.AddrPort) func(*netlink.Buffer) {
		return func(b *netlink.Buffer) {
			b.Nest(ctaTupleIP, func(b *netlink.Buffer) {
				b.Addr(pick(from.Addr(), ctaIPv4Src, ctaIPv6Src), from.Addr())
				b.Addr(pick(to.Addr(), ctaIPv4Dst, ctaIPv6Dst), to.Addr())
			})
			b.Nest(ctaTupleProto, func(b *netlink.Buffer) {
				b.Uint8(ctaProtoNum, protocol)
				b.Uint16BE(ctaProtoSport, from.Port())
				b.Uint16BE(ctaProtoDport, to.Port())
			})
		}
	}
	from, to, replies := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst), netip.MustParseAddrPort(replySrc)
	b := netlink.Buffer{netlink.AddrFamily(from.Addr()), 0, 0, 0}
	b.Nest(ctaTupleOrig, tuple(from, to))
	b.Nest(ctaTupleReply, tuple(replies, from))
	const ctaTimeout, seconds, ctaStatus, confirmed = 7, 600, 3, 1 << 3
	b.Uint32BE(ctaTimeout, seconds)
	b.Uint32BE(ctaStatus, confirmed)
	b = append(b, parent...)
	return netlink.Request{Type: unix.NFNL_SUBSYS_CTNETLINK << 8, Flags: unix.NLM_F_CREATE | unix.NLM_F_ACK, Body: b}
}

func addEntries(t testing.TB, c *Conntrack, list ...netlink.Request) {
	t.Helper()
	for some := range slices.Chunk(list, 500) {
		resp, err := c.entries.Do(some)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
}

// TestFromOthers lists connections of both families, with destination NAT, without ports, with a parent, and to the host; and
// not those that the host opened.
func TestFromOthers(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	c := openConntrack(t)
	if list, _, err := c.FromOthers(); err != nil || len(list) != 0 {
		t.Errorf("in a new namespace: %v, %v", list, err)
	}
	kerneltest.Run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "lo")
	kerneltest.Run(t, "ip", "route", "add", "local", "198.18.7.0/24", "dev", "lo")
	kerneltest.Run(t, "ip", "route", "add", "local", "default", "dev", "lo", "table", "100") // for a transparent proxy
	first := addEntry(unix.IPPROTO_TCP, "10.0.0.1:1000", "10.0.0.2:21", "10.0.1.2:2121", nil)
	var parent netlink.Buffer
	parent.Bytes(ctaTupleMaster|unix.NLA_F_NESTED, netlink.Attr(first.Body[4:], ctaTupleOrig))
	addEntries(t, c, first,
		addEntry(unix.IPPROTO_UDP, "[fd00::1]:1001", "[fd00::2]:53", "[fd00::2]:53", nil),
		addEntry(unix.IPPROTO_TCP, "10.0.1.2:20", "10.0.0.1:1002", "10.0.0.1:1002", parent),
		addEntry(unix.IPPROTO_TCP, "198.18.7.9:1003", "10.0.0.2:80", "10.0.0.2:80", nil),
		addEntry(unix.IPPROTO_TCP, "192.0.2.1:1003", "10.0.0.2:80", "10.0.0.2:80", nil),     // from the host
		addEntry(unix.IPPROTO_TCP, "10.0.0.1:1004", "10.96.0.1:443", "192.0.2.1:6443", nil), // to the host, by a Service
		addEntry(unix.IPPROTO_TCP, "10.0.0.1:1005", "192.0.2.1:30080", "10.0.0.2:80", nil),  // by a node port
		addEntry(unix.IPPROTO_TCP, "127.0.0.1:1006", "127.0.0.1:8080", "10.0.0.2:80", nil))  // by a host port
	kerneltest.Run(t, strings.Fields("conntrack -I -p icmp -s 10.0.0.1 -d 10.0.0.2 --icmp-type 8 --icmp-code 0 --icmp-id 7 -t 60")...)
	list, own, err := c.FromOthers()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ids := map[uint32]bool{}
	for _, x := range list {
		text := fmt.Sprintf("%d %s %s", x.Protocol, x.Src, x.Dst)
		if x.Parent != nil {
			text += fmt.Sprintf(" of %d %s %s", x.Parent.Protocol, x.Parent.Src, x.Parent.Dst)
		}
		got, ids[x.ID] = append(got, text), true
	}
	slices.Sort(got)
	want := "1 10.0.0.1:0 10.0.0.2:0\n17 [fd00::1]:1001 [fd00::2]:53\n6 10.0.0.1:1000 10.0.1.2:2121\n6 10.0.0.1:1004 192.0.2.1:6443\n" +
		"6 10.0.0.1:1005 10.0.0.2:80\n6 10.0.1.2:20 10.0.0.1:1002 of 6 10.0.0.1:1000 10.0.1.2:2121"
	if d := kerneltest.Diff(want, strings.Join(got, "\n")); d != "" {
		t.Errorf("want (-), have (+):\n%s", d)
	}
	addrs := map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true, netip.MustParseAddr("127.0.0.1"): true, netip.IPv6Loopback(): true}
	if !maps.Equal(own.addrs, addrs) {
		t.Errorf("the host's addresses are %v", own.addrs)
	}
	for addr, want := range map[string]bool{"192.0.2.1": true, "192.0.3.1": false, "198.18.7.9": true, "198.18.8.1": false, "127.1.2.3": true, "fd00::1": false} {
		if own.Has(netip.MustParseAddr(addr)) != want {
			t.Errorf("%s is the host's: %v", addr, !want)
		}
	}
	listed := kerneltest.Run(t, "conntrack", "-L", "-o", "id")
	for _, x := range list {
		if text := fmt.Sprintf(" id=%d", x.ID); x.Src.Addr().Is4() && !strings.Contains(listed, text) {
			t.Errorf("conntrack does not list%s:\n%s", text, listed)
		}
	}
	if len(ids) != len(list) {
		t.Errorf("%d connections have %d numbers", len(list), len(ids))
	}

	// The parent ends. Its destination is then known as before destination NAT.
	kerneltest.Run(t, strings.Fields("conntrack -D -p tcp --orig-port-src 1000")...)
	if list, _, err = c.FromOthers(); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(x Connection) bool { return x.Parent != nil })
	if i < 0 || list[i].Parent.Dst.String() != "10.0.0.2:21" {
		t.Errorf("without the parent: %+v", list)
	}
}

// BenchmarkFromOthers lists 100,000 connections.
func BenchmarkFromOthers(b *testing.B) {
	kerneltest.Host(b)
	c := openConntrack(b)
	var list []netlink.Request
	for i := range 100_000 {
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 14), byte(i >> 6)}), uint16(i&63)+1024)
		list = append(list, addEntry(unix.IPPROTO_TCP, src.String(), "10.1.0.1:80", "10.1.0.2:80", nil))
	}
	addEntries(b, c, list...)
	for b.Loop() {
		start := time.Now()
		if list, _, err := c.FromOthers(); err != nil || len(list) != 100_000 {
			b.Fatal(len(list), err)
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/last")
	}
}
