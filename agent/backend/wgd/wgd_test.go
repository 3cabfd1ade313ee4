package wgd_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/backend/wgd"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestMain lets the test binary run as the device.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == wgd.Command {
		if err := wgd.Run(context.Background(), os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	private = "cGRpZCB5b3UgdGhpbmsgdGhpcyB3YXMgYSBzZWNyZT8="
	peerA   = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
	peerB   = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0="
)

func device(t *testing.T) *kernel.WireGuard {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(private+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &kernel.WireGuard{
		Name: "wg0", KeyFile: key, Port: 51820, MTU: 1420, OwnerTag: "fairlead-agent test",
		Program: []string{"/proc/self/exe", wgd.Command}, Socket: filepath.Join(dir, "wg0.sock"),
		Peers: []kernel.WireGuardPeer{
			{PublicKey: peerA, Endpoint: netip.MustParseAddrPort("192.0.2.2:51820"), AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/26"), netip.MustParsePrefix("fd00::/64")}},
			{PublicKey: peerB, Endpoint: netip.MustParseAddrPort("[2001:db8::3]:51820"), Keepalive: 25, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/26")}},
		},
	}
}

// TestUserspace checks that a separate process serves the link, that a second apply finds it and sets what differs, and
// that the process ends with the link.
func TestUserspace(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	w := device(t)
	if kerneltest.Has(t, "wireguard") { // the engine uses a running process even then, but does not start one
		p := exec.Command(w.Program[0], wgd.Command, w.Name, w.Socket)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		go p.Wait()
		kerneltest.Eventually(t, func() error { return kerneltest.Listens(w.Socket) })
	}
	apply(t, w)
	link := kerneltest.Run(t, "ip", "-d", "link", "show", "wg0")
	for _, want := range []string{"tun type tun", "mtu 1420", "UP", "alias fairlead-agent test"} {
		if !strings.Contains(link, want) {
			t.Errorf("no %q in\n%s", want, link)
		}
	}
	again := *w
	again.Peers = []kernel.WireGuardPeer{w.Peers[0]}
	again.Peers[0].AllowedIPs = []netip.Prefix{netip.MustParsePrefix("10.244.1.0/26"), netip.MustParsePrefix("10.244.2.0/26")}
	if d := differs(t, &again); len(d) != 1 || !strings.Contains(d[0].String(), "peer "+peerA+": allowed-ips are not exactly [10.244.1.0/26 10.244.2.0/26], peer "+peerB+" should not be there") {
		t.Errorf("differs in %v", d)
	}
	apply(t, &again)
	if after := kerneltest.Run(t, "ip", "-d", "link", "show", "wg0"); after != link {
		t.Errorf("made anew:\n%s\nwas\n%s", after, link)
	}
	remove(t, &again)
	kerneltest.Until(t, func() bool { _, err := os.Stat(w.Socket); return err != nil }) // the process ended
}

func engine(t *testing.T) *kernel.Engine {
	t.Helper()
	e, err := kernel.Open(nil, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func apply(t *testing.T, w *kernel.WireGuard) {
	t.Helper()
	if err := engine(t).Apply(kernel.Objects{w}); err != nil {
		t.Fatal(err)
	}
	if d := differs(t, w); len(d) > 0 {
		t.Fatalf("after apply: %v", d)
	}
}

func differs(t *testing.T, w *kernel.WireGuard) []kernel.Difference {
	t.Helper()
	d, err := engine(t).Compare(kernel.Objects{w})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func remove(t *testing.T, w *kernel.WireGuard) {
	t.Helper()
	if err := engine(t).Remove(kernel.Objects{w}); err != nil {
		t.Fatal(err)
	}
}

// TestUserspaceFails checks that the error names a program that cannot create the link, and what it needs.
func TestUserspaceFails(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	w := device(t)
	w.Program = []string{"/bin/false"}
	if kerneltest.Has(t, "wireguard") {
		apply(t, w)
		return
	}
	if err := engine(t).Apply(kernel.Objects{w}); err == nil || !strings.Contains(err.Error(), "/bin/false wg0 "+w.Socket+" exited (exit status 1)") {
		t.Errorf("%v", err)
	}
}

// TestPortTaken checks that the error of a port that another program uses says so, also at the next attempt.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	w, e := device(t), engine(t)
	socket, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", w.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	want := fmt.Sprintf("another program or tunnel of this host uses UDP port %d", w.Port)
	for range 2 {
		if err := e.EnsureNow(w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
	kerneltest.Run(t, "ip", "link", "del", "wg0") // ends the process
}
