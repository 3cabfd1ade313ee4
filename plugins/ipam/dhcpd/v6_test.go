package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/packet"
)

// TestV6Stateful gets an address by DHCPv6, with the prefix length and the default route from the router advertisement,
// and another address by DHCPv4.
func TestV6Stateful(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24", "fd00:7::1/64")
	n.Dnsmasq("--enable-ra", "--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,120", "--dhcp-range=fd00:7::100,fd00:7::1ff,64,120",
		"--dhcp-option=option6:dns-server,[fd00:7::53]", "--dhcp-option=option6:domain-search,six.example")
	r := request("one", kerneltest.Netns(t), `"dhcp6": true, "acceptRA": true, "request": [{"option": 6}]`)
	n.Join(r.Netns, "eth0")
	d := start(t, Options{})
	defer d.Close()
	began := time.Now()
	res, err := d.Allocate(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > kerneltest.Slow(10*time.Second) {
		t.Errorf("it took %v", took)
	}
	text := ""
	for _, ip := range res.IPs {
		text += fmt.Sprintf("%v in /%d by %v; ", netip.MustParsePrefix("fd00:7::/64").Contains(ip.Address.Addr()), ip.Address.Bits(), ip.Gateway.Is6())
	}
	if text != "true in /64 by true; false in /24 by false; " {
		t.Errorf("addresses: %v", res.IPs)
	}
	if len(res.Routes) != 2 || res.Routes[0].Dst.String() != "::/0" || !res.Routes[0].GW.IsLinkLocalUnicast() || !strings.Contains(fmt.Sprint(res.DNS), "fd00:7::53") ||
		!slices.Contains(res.DNS.Search, "six.example") {
		t.Errorf("routes %v, dns %v", res.Routes, res.DNS)
	}
	// Wait for the server to write down the lease.
	kerneltest.Until(t, func() bool { return strings.Contains(n.Leases(), "fd00:7::1") })
	if got := strings.TrimSpace(kerneltest.In(t, r.Netns, "cat", "/proc/sys/net/ipv6/conf/eth0/accept_ra")); got != "0" {
		t.Errorf("accept_ra is %s", got)
	}
	if err := d.check(r); err != nil {
		t.Error(err)
	}
	d.release(t, r)
	// Wait for the server's leases to end.
	kerneltest.Until(t, func() bool {
		return !strings.Contains(n.Leases(), "fd00:7::1") && !strings.Contains(n.Leases(), "10.0.0.")
	})
}

// TestSLAAC gets an address from a router advertisement alone.
func TestSLAAC(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "fd00:7::1/64")
	n.Dnsmasq("--enable-ra", "--dhcp-range=fd00:7::,ra-only,64,120")
	r := request("one", kerneltest.Netns(t), `"dhcp4": false, "acceptRA": true, "priority": 9`)
	n.Join(r.Netns, "eth0")
	d := start(t, Options{})
	defer d.Close()
	res := get(t, d, r)
	if len(res.IPs) != 1 || !netip.MustParsePrefix("fd00:7::/64").Contains(res.IPs[0].Address.Addr()) || len(res.Routes) != 1 || res.Routes[0].Priority != 9 {
		t.Errorf("%+v", res)
	}
	kerneltest.In(t, r.Netns, "ping", "-c1", "-W3", "fd00:7::1")
	d.release(t, r)
}

// keaLease is a DHCPv6 lease from Kea.
type keaLease struct {
	*Daemon
	t      *testing.T
	n      *dhcptest.Network
	server *dhcptest.Server
	r      Request
	ip     netip.Prefix
}

// newKeaLease starts Kea with lifetimes and timers in seconds, and gets a lease.
func newKeaLease(t *testing.T, preferred, valid, renew, rebind int) *keaLease {
	t.Helper()
	kerneltest.Host(t)
	k := &keaLease{t: t, n: dhcptest.New(t, "br0", "fd00:7::1/64"), r: request("one", kerneltest.Netns(t), `"dhcp4": false, "dhcp6": true`)}
	k.server = k.n.Kea6(fmt.Sprintf(`"preferred-lifetime": %d, "valid-lifetime": %d, "renew-timer": %d, "rebind-timer": %d,
		"subnet6": [{"subnet": "fd00:7::/64", "interface": "eth0", "pools": [{"pool": "fd00:7::100 - fd00:7::1ff"}]}]`, preferred, valid, renew, rebind))
	k.n.Join(k.r.Netns, "eth0")
	k.Daemon = start(t, Options{Timeout: time.Second})
	t.Cleanup(k.Close)
	k.ip = get(t, k.Daemon, k.r).IPs[0].Address
	return k
}

// onLink reports whether the interface has the address.
func (k *keaLease) onLink() bool {
	return strings.Contains(kerneltest.In(k.t, k.r.Netns, "ip", "addr"), k.ip.String())
}

// stayAndLose checks that the lease is renewed for some time. Then it freezes Kea and waits until the lease is lost.
func (k *keaLease) stayAndLose(longer time.Duration) {
	k.t.Helper()
	time.Sleep(longer)
	if err := k.check(k.r); err != nil {
		k.t.Fatalf("after renewals: %v", err)
	}
	k.server.Freeze()
	kerneltest.Until(k.t, func() bool { return errorHas(k.check(k.r), "DHCPv6 lost "+k.ip.Addr().String()) && !k.onLink() })
}

// TestV6Renewal renews an address at Kea, loses it when Kea stops, gets it again, and releases it.
func TestV6Renewal(t *testing.T) {
	t.Parallel()
	k := newKeaLease(t, 11, 12, 2, 6)
	if k.ip.Bits() != 128 {
		t.Errorf("without a router: %v", k.ip)
	}
	k.stayAndLose(14 * time.Second) // longer than the lease
	k.server.Thaw()
	// Wait for the lease to be acquired again.
	kerneltest.Until(t, func() bool { return k.check(k.r) == nil && k.onLink() })
	k.release(t, k.r)
	raw, err := os.ReadFile(k.n.KeaLeases("kea-dhcp6"))
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if f := strings.Split(lines[len(lines)-1], ","); err != nil || len(f) < 3 || f[0] != k.ip.Addr().String() || f[2] != "0" {
		t.Errorf("the server's last entry is not a release: %v, %v", lines[len(lines)-1], err)
	}
}

// TestSlowDisk checks that a lease expires in time while storing it takes long. A FIFO in place of the temporary file
// stands for the disk: opening it waits.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	k := newKeaLease(t, 4, 5, 1, 3)
	l, err := k.find(k.r)
	if err != nil {
		t.Fatal(err)
	}
	fifo := k.store.file(l.saved.owner()) + "~"
	kerneltest.Eventually(t, func() error { return unix.Mkfifo(fifo, 0o600) }) // a renewal may use the name now
	proceed := func() {                                                        // the daemon's open(2) returns
		if f, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	}
	defer proceed()
	k.stayAndLose(7 * time.Second) // longer than the lease
	k.server.Thaw()
	proceed()
	k.release(t, k.r)
	if left, err := filepath.Glob(k.store.dir + "/*.json*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestPortTakenForAMoment opens the client's socket while a copy of the last one is open, and while another client has
// the port.
func TestPortTakenForAMoment(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n, path := dhcptest.New(t, "br0", "10.0.0.1/24"), kerneltest.Netns(t)
	n.Join(path, "eth0")
	l, err := openLink(path, netns.ID{}, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.prepare(true); err != nil {
		t.Fatal(err)
	}
	other, err := packet.OpenUDP6(l.ns, l.index, netip.AddrPortFrom(l.local(), clientPort6))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&v6{}).open(t.Context(), l, time.Now().Add(50*time.Millisecond)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another client has the port: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { other.Close() })
	s, err := (&v6{}).open(t.Context(), l, time.Now().Add(kerneltest.Slow(10*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}
