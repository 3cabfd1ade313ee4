package dhcpd

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// start creates a daemon that logs to the test.
func start(t *testing.T, o Options) *Daemon {
	t.Helper()
	if o.Leases == "" {
		o.Leases = t.TempDir()
	}
	if o.ResendTimeout == 0 {
		o.ResendTimeout = 20 * time.Second
	}
	o.Log = func(line string) { t.Log(line) }
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// request returns a request for interface eth0 of a container.
func request(id, netns, ipam string) Request {
	if ipam != "" {
		ipam = ", " + ipam
	}
	return Request{ContainerID: id, Netns: netns, IfName: "eth0", Stdin: []byte(`{"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": {"type": "dhcp"` + ipam + `}}`)}
}

// get runs an ADD and puts the address on the interface, as a link plugin does.
func get(t *testing.T, d *Daemon, r Request) *cni.Result {
	t.Helper()
	res, err := d.Allocate(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range res.IPs {
		kerneltest.In(t, r.Netns, "ip", "addr", "add", ip.Address.String(), "dev", r.IfName)
	}
	for _, rt := range res.Routes {
		kerneltest.In(t, r.Netns, "ip", "route", "add", rt.Dst.String(), "via", rt.GW.String(), "dev", r.IfName)
	}
	return res
}

func (d *Daemon) asCaller() *service { return &service{d, context.Background()} }

func (r Request) args() *CmdArgs {
	return &CmdArgs{ContainerID: r.ContainerID, Netns: r.Netns, IfName: r.IfName, Args: r.Args, StdinData: r.Stdin}
}

func (d *Daemon) check(r Request) error { return d.asCaller().Check(r.args(), nil) }

func (d *Daemon) status(r Request) error { return d.asCaller().Status(r.args(), nil) }

func (d *Daemon) release(t *testing.T, r Request) {
	t.Helper()
	if err := d.asCaller().Release(r.args(), nil); err != nil {
		t.Fatal(err)
	}
}

func errorHas(err error, words string) bool {
	return err != nil && strings.Contains(err.Error(), words)
}

// TestLease checks an address with all its options, and its release by DEL.
func TestLease(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,120", "--dhcp-option=121,10.9.0.0/16,10.0.0.7,0.0.0.0/0,10.0.0.1,10.8.0.0/16,0.0.0.0",
		"--dhcp-option=6,10.0.0.53", "--dhcp-option=15,example.org", "--dhcp-option=119,a.example,b.example")
	netns := kerneltest.Netns(t)
	n.Join(netns, "eth0")
	d := start(t, Options{})
	defer d.Close()
	r := request("one", netns, `"priority": 7, "request": [{"option": 121}, {"option": "domain-name-servers"}, {"option": "15"}, {"option": "domain-search"}],
		"provide": [{"option": "host-name", "value": "x", "fromArg": "K8S_POD_NAME"}, {"option": "vendor-class-identifier", "value": "fl"}],
		"routes": [{"dst": "10.7.0.0/16", "gw": "10.0.0.9"}, {"dst": "10.6.0.0/16", "gw": "192.0.2.1"}]`)
	r.Args = "IgnoreUnknown=1;K8S_POD_NAME=pod"
	res, err := d.Allocate(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.IPs) != 1 || !netip.MustParsePrefix("10.0.0.0/24").Contains(res.IPs[0].Address.Addr()) || res.IPs[0].Address.Bits() != 24 ||
		res.IPs[0].Gateway != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("addresses: %+v", res.IPs)
	}
	text := ""
	for _, rt := range res.Routes {
		text += fmt.Sprintf("%s via %s priority %d scope %v; ", rt.Dst, rt.GW, rt.Priority, rt.Scope != nil)
	}
	const want = "10.8.0.0/16 via invalid IP priority 7 scope true; 10.9.0.0/16 via 10.0.0.7 priority 7 scope false; " +
		"0.0.0.0/0 via 10.0.0.1 priority 7 scope false; 10.7.0.0/16 via 10.0.0.9 priority 0 scope false; "
	if text != want {
		t.Errorf("routes: %s\nwant:   %s", text, want)
	}
	if got := fmt.Sprint(res.DNS); got != "{[10.0.0.53] example.org [a.example b.example] []}" {
		t.Errorf("dns: %s", got)
	}
	// Wait for the server to write down the lease of "one/net/eth0".
	kerneltest.Until(t, func() bool {
		got := n.Leases()
		return strings.Contains(got, " pod ") && strings.Contains(got, "00:6f:6e:65:2f:6e:65:74:2f:65:74:68:30")
	})
	// A second Allocate returns the same: the reference plugin checks a lease this way.
	same, err := d.Allocate(context.Background(), r)
	if err != nil || !reflect.DeepEqual(same, res) {
		t.Errorf("again: %v, %v", same, err)
	}
	if err := d.check(r); err != nil {
		t.Errorf("check: %v", err)
	}
	d.release(t, r)
	// Wait for the server's lease to end.
	kerneltest.Until(t, func() bool { return !strings.Contains(n.Leases(), "10.0.0.") })
	if err := d.check(r); !errorHas(err, "there is no lease for container one, interface eth0") {
		t.Errorf("check after the release: %v", err)
	}
	d.release(t, r) // releasing again is not an error
	if s := d.States(); len(s) != 0 {
		t.Errorf("left: %v", s)
	}
}

// TestReleaseOfLinkThatWasDown releases the addresses of an interface that a program set down. The spanning tree protocol
// blocks its port for 4 s after the daemon has set it up.
func TestReleaseOfLinkThatWasDown(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24", "fd00::1/64")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h", "--dhcp-range=fd00::50,fd00::60,64,1h")
	netns := kerneltest.Netns(t)
	n.Join(netns, "eth0")
	d := start(t, Options{})
	defer d.Close()
	r := request("one", netns, `"dhcp6": true`)
	if _, err := d.Allocate(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	// Wait for the server to write down both leases.
	kerneltest.Until(t, func() bool {
		got := n.Leases()
		return strings.Contains(got, "10.0.0.") && strings.Contains(got, "fd00::")
	})
	kerneltest.Run(t, "ip", "link", "set", "br0", "type", "bridge", "stp_state", "1", "forward_delay", "200")
	kerneltest.In(t, netns, "ip", "link", "set", "eth0", "down")
	// Wait for the bridge to notice that.
	kerneltest.Until(t, func() bool { return strings.Contains(kerneltest.Run(t, "bridge", "link"), "state disabled") })
	d.release(t, r)
	// Wait for the server's leases to end.
	kerneltest.Until(t, func() bool {
		got := n.Leases()
		return !strings.Contains(got, "10.0.0.") && !strings.Contains(got, "fd00::")
	})
}

// keaConf returns the configuration of a subnet with a short lease time.
func keaConf(subnet, pool, more string) string {
	return fmt.Sprintf(`"valid-lifetime": 12, "renew-timer": 2, "rebind-timer": 6, "authoritative": true, "subnet4": [{"subnet": %q,
		"pools": [{"pool": %q}], "option-data": [{"name": "routers", "data": "10.0.0.1"}] %s}]`, subnet, pool, more)
}

// TestRenewal renews a lease while the server answers. When the server stops, the lease is rebound, then expires, is
// removed from the interface and reported. When the server returns, the lease is acquired again.
func TestRenewal(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	server := n.Kea4(keaConf("10.0.0.0/24", "10.0.0.50 - 10.0.0.60", ""))
	netns := kerneltest.Netns(t)
	n.Join(netns, "eth0")
	d := start(t, Options{Timeout: time.Second})
	defer d.Close()
	r := request("one", netns, `"routes": [{"dst": "10.7.0.0/16", "gw": "10.0.0.9"}]`)
	ip := get(t, d, r).IPs[0].Address.String()
	time.Sleep(14 * time.Second) // longer than the lease
	if err := d.check(r); err != nil {
		t.Fatalf("after renewals: %v", err)
	}
	server.Freeze()
	// Wait for the lease to be lost.
	kerneltest.Until(t, func() bool { return d.check(r) != nil })
	// Wait for the address to be taken off.
	kerneltest.Until(t, func() bool { return !strings.Contains(kerneltest.In(t, netns, "ip", "addr"), ip) })
	if err := d.check(r); !errorHas(err, "DHCPv4 lost "+strings.TrimSuffix(ip, "/24")+", route to 0.0.0.0/0: the lease expired") {
		t.Errorf("check: %v", err)
	}
	if err := d.status(r); !errorHas(err, "a lease is lost: container one, interface eth0: DHCPv4 lost") {
		t.Errorf("status: %v", err)
	}
	if s := d.States()[0]; s.State != "lost" || fmt.Sprint(s.LostAddresses, s.LostRoutes) != "["+strings.TrimSuffix(ip, "/24")+"] [0.0.0.0/0]" {
		t.Errorf("state: %+v", s)
	}
	server.Thaw()
	// Wait for the lease to be acquired again.
	kerneltest.Until(t, func() bool { return d.check(r) == nil })
	// Wait for the address, its route and the configuration's own route to be put back.
	kerneltest.Until(t, func() bool {
		routes := kerneltest.In(t, netns, "ip", "route")
		return strings.Contains(kerneltest.In(t, netns, "ip", "addr"), ip) && strings.Contains(routes, "default via 10.0.0.1") &&
			strings.Contains(routes, "10.7.0.0/16 via 10.0.0.9")
	})
	if err := d.status(r); err != nil {
		t.Errorf("status: %v", err)
	}
	d.release(t, r)
}

// TestServerRejectsRenewal checks that an address is removed at once when the server takes it back.
func TestServerRejectsRenewal(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	server := n.Kea4(keaConf("10.0.0.0/24", "10.0.0.50 - 10.0.0.60", ""))
	netns := kerneltest.Netns(t)
	n.Join(netns, "eth0")
	d := start(t, Options{})
	defer d.Close()
	r := request("one", netns, "")
	ip := get(t, d, r).IPs[0].Address.String()
	server.Stop()
	n.Addr("add", "10.5.0.1/24")
	n.Addr("del", "10.0.0.1/24")
	n.Kea4(keaConf("10.5.0.0/24", "10.5.0.50 - 10.5.0.60", ""))
	// Wait for the lease to be lost.
	kerneltest.Until(t, func() bool { return errorHas(d.check(r), "refuses") || errorHas(d.check(r), "expired") })
	// Wait for the address to be taken off.
	kerneltest.Until(t, func() bool { return !strings.Contains(kerneltest.In(t, netns, "ip", "addr"), ip) })
	// Time for the server to offer another address, which must not be accepted.
	time.Sleep(time.Second)
	if out := kerneltest.In(t, netns, "ip", "addr"); strings.Contains(out, "10.5.0.") {
		t.Errorf("another address was taken: %s", out)
	}
}
