package dhcpd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

// TestLeasesSurviveRestart checks that leases survive the daemon. The next daemon continues and renews those whose interface exists.
func TestLeasesSurviveRestart(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	n.Kea4(keaConf("10.0.0.0/24", "10.0.0.50 - 10.0.0.60", ""))
	d := start(t, Options{})
	var all []Request
	for _, id := range []string{"stays", "gone", "unplugged", "replaced"} {
		r := request(id, kerneltest.Netns(t), "")
		n.Join(r.Netns, "eth0")
		get(t, d, r)
		all = append(all, r)
	}
	if _, err := New(Options{Leases: d.o.Leases}); !errorHas(err, "another DHCP daemon uses the leases in ") {
		t.Errorf("a second daemon on the same leases: %v", err)
	}
	d.Close()
	kerneltest.Gone(t, all[1].Netns)
	kerneltest.In(t, all[2].Netns, "ip", "link", "del", "eth0")
	other := kerneltest.Netns(t)
	kerneltest.Gone(t, all[3].Netns)
	kerneltest.Run(t, "mount", "--bind", other, all[3].Netns)
	if err := os.WriteFile(d.o.Leases+"/net,torn,eth0.json~", []byte(`{"boot": "`), 0o600); err != nil {
		t.Fatal(err)
	}
	before := d.States()[len(all)-1].Expire // the last known time

	d = start(t, Options{Leases: d.o.Leases})
	defer d.Close()
	if s := d.States(); len(s) != 1 || s[0].Container != "stays" || s[0].State != "held" {
		t.Fatalf("continued: %+v", s)
	}
	// Wait for a renewal.
	kerneltest.Until(t, func() bool { return d.States()[0].Expire.After(before.Add(2 * time.Second)) })
	// While a renewal is being written, there is a temporary file too.
	kerneltest.Eventually(t, func() error {
		files, err := os.ReadDir(d.o.Leases)
		if err == nil && len(files) != 2 {
			err = fmt.Errorf("files: %v", files)
		}
		return err
	})
	d.release(t, all[0])
}

// TestNamespaceLeavesPath checks that the daemon keeps and renews the lease of a container whose namespace is no longer at
// the path of its ADD, also after the daemon restarts.
func TestNamespaceLeavesPath(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	n.Kea4(keaConf("10.0.0.0/24", "10.0.0.50 - 10.0.0.60", ""))
	const check = 100 * time.Millisecond
	d := start(t, Options{checkInterval: check})
	ns, path := kerneltest.Netns(t), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(ns, path); err != nil {
		t.Fatal(err)
	}
	n.Join(ns, "eth0")
	r := request("one", path, "")
	get(t, d, r)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		time.Sleep(5 * check)
		if err := d.check(r); err != nil {
			t.Fatal(err)
		}
		before := d.States()[0].Expire
		kerneltest.Until(t, func() bool { return d.States()[0].Expire.After(before.Add(2 * time.Second)) })
		d.Close()
		d = start(t, Options{checkInterval: check, Leases: d.o.Leases})
	}
	defer d.Close()
	kerneltest.Gone(t, ns)
	kerneltest.Until(t, func() bool { return len(d.States()) == 0 })
}

// TestReboot checks that leases of another boot are dropped, and files of others are kept.
func TestReboot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, &saved{Boot: "another", Network: "n", ContainerID: strings.Repeat("c", 250), IfName: "eth0"})
	write(t, s, &saved{Boot: "another", Network: "n", ContainerID: "c", IfName: "eth0,1"})
	s.close()
	others := []string{"a,b.json", "a,b,c.txt", "notes", "notes~", "state.json"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, Options{Leases: dir})
	defer d.Close()
	if files, _ := os.ReadDir(dir); len(files) != 1+len(others) || len(d.States()) != 0 {
		t.Errorf("left: %v", files)
	}
}

// TestDamagedReply checks that the daemon starts although the reply in a stored lease is damaged.
func TestDamagedReply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	stdin := `{"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": {"type": "dhcp", "dhcp4": false, "dhcp6": true, "request": [{"option": "domain-name-servers"}]}}`
	write(t, s, &saved{Boot: s.boot, Network: "net", ContainerID: "one", IfName: "eth0", Stdin: []byte(stdin),
		V6: &v6{Reply: []byte("damaged"), IP: netip.MustParseAddr("fd00::5"), Term: term{Renew: forever, Rebind: forever, Expire: forever}}})
	s.close()
	d := start(t, Options{Leases: dir})
	defer d.Close()
	if files, _ := os.ReadDir(dir); len(files) != 1 || len(d.States()) != 0 {
		t.Errorf("left: %v", files)
	}
}

// TestNamespaceEnds checks that the maintenance ends with the namespace, and does not keep it alive.
func TestNamespaceEnds(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h")
	d := start(t, Options{checkInterval: 50 * time.Millisecond})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	get(t, d, r)
	kerneltest.Gone(t, r.Netns)
	// Wait for the maintenance to end.
	kerneltest.Until(t, func() bool { return len(d.States()) == 0 })
	// Wait for the kernel to end the namespace, and the link with it.
	kerneltest.Until(t, func() bool {
		return strings.Count(kerneltest.Run(t, "ip", "-o", "link", "show", "master", "br0"), "link-netnsid") == 1 // the server's link

	})
	d.release(t, r)
	if files, _ := os.ReadDir(d.o.Leases); len(files) != 1 {
		t.Errorf("files: %v", files)
	}
}

// TestRestartedContainer checks that an attachment gets its address again after a restart of its container.
func TestRestartedContainer(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h")
	d := start(t, Options{})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	first := get(t, d, r)
	kerneltest.Gone(t, r.Netns)
	r.Netns = kerneltest.Netns(t)
	n.Join(r.Netns, "eth0")
	if second := get(t, d, r); second.IPs[0].Address != first.IPs[0].Address || len(d.States()) != 1 {
		t.Errorf("first %v, then %v", first.IPs, second.IPs)
	}
}

// TestLeaseOfReusedInode checks that a lease ends with its namespace although the kernel gave the device and inode to
// another one. Only the cookie differs. A lease without a cookie, which an earlier version stored, continues.
func TestLeaseOfReusedInode(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h")
	d := start(t, Options{})
	for _, id := range []string{"old", "reused"} {
		r := request(id, kerneltest.Netns(t), "")
		n.Join(r.Netns, "eth0")
		get(t, d, r)
	}
	d.Close()
	s, err := openStore(d.o.Leases)
	if err != nil {
		t.Fatal(err)
	}
	list, unread, err := s.list()
	if err != nil || len(unread) > 0 || len(list) != 2 {
		t.Fatalf("stored: %v, %v", list, err)
	}
	for _, v := range list {
		if v.NetnsCookie = (netns.ID{Cookie: v.namespace().Cookie + 1}).StoredCookie(); v.ContainerID == "old" {
			v.NetnsCookie = 0
		}
		write(t, s, &v)
	}
	s.close()
	d = start(t, Options{Leases: d.o.Leases})
	defer d.Close()
	if s := d.States(); len(s) != 1 || s[0].Container != "old" {
		t.Errorf("continued: %+v", s)
	}
}

// TestAbandonedAdd checks that an ADD leaves nothing if its caller has gone or a DEL arrives. A second concurrent ADD
// is rejected.
func TestAbandonedAdd(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	d := start(t, Options{})
	defer d.Close()
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	for _, leave := range []func(context.CancelFunc){func(c context.CancelFunc) { c() }, func(context.CancelFunc) { d.release(t, r) }} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		errs := make(chan error)
		go func() {
			_, err := d.Allocate(ctx, r)
			errs <- err
		}()
		// Wait until the lease waits.
		kerneltest.Until(t, func() bool { s := d.States(); return len(s) == 1 && s[0].State == "waiting" })
		if _, err := d.Allocate(context.Background(), r); !errorHas(err, "another ADD of one/net/eth0 is waiting") {
			t.Errorf("a second ADD: %v", err)
		}
		leave(cancel)
		if err := <-errs; err == nil {
			t.Error("it got an address without a server")
		}
		if s := d.States(); len(s) != 0 {
			t.Errorf("left: %v", s)
		}
	}
}

// TestErrorsWithoutServer checks the errors without a server, an interface or a namespace.
func TestErrorsWithoutServer(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	d := start(t, Options{ResendTimeout: time.Second})
	defer d.Close()
	netns := kerneltest.Netns(t)
	n.Join(netns, "eth0")
	for _, c := range []struct{ ipam, netns, want string }{
		{"", netns, "no DHCP server offers an address on eth0: no answer within 1s"},
		{`"dhcp4": false, "dhcp6": true`, netns, "no DHCPv6 server offers an address on eth0: no answer within 1s"},
		{`"dhcp4": false, "acceptRA": true`, netns, "no router answers on eth0: no answer within 1s"},
		{"", kerneltest.Netns(t), "the interface is gone: no eth0 in "},
		{"", "/nonexistent", "the interface is gone: open network namespace /nonexistent: no such file or directory"},
	} {
		if _, err := d.Allocate(context.Background(), request("one", c.netns, c.ipam)); !errorHas(err, c.want) {
			t.Errorf("%s: %v, want %s", c.ipam, err, c.want)
		}
	}
	if s := d.States(); len(s) != 0 {
		t.Errorf("left: %v", s)
	}
}

// write stores a lease.
func write(t *testing.T, s *store, v *saved) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = s.write(v.owner(), raw)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// panickingADD is a protocol whose messages make it panic.
type panickingADD struct{ protocol }

func (panickingADD) label() string                        { return "test" }
func (panickingADD) acquire(context.Context, *link) error { panic("acquire") }
func (panickingADD) release(context.Context, *link) error { panic("release") }

// TestPanicInADD checks that a panic in one ADD does not end the daemon, which maintains the leases of all others.
func TestPanicInADD(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	n := dhcptest.New(t, "br0", "10.0.0.1/24")
	r := request("one", kerneltest.Netns(t), "")
	n.Join(r.Netns, "eth0")
	d := start(t, Options{})
	defer d.Close()
	l, err := d.newLease(saved{Network: "net", ContainerID: r.ContainerID, IfName: r.IfName, Netns: r.Netns, Stdin: r.Stdin})
	if err != nil {
		t.Fatal(err)
	}
	defer l.stop()
	l.protocols = []protocol{panickingADD{}}
	if err := l.acquire(context.Background()); !errorHas(err, "panic: acquire") {
		t.Errorf("got %v", err)
	}
}
