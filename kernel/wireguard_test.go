package kernel_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const wireguardPrivate = "cGRpZCB5b3UgdGhpbmsgdGhpcyB3YXMgYSBzZWNyZT8="

// wireguard returns a device with some peers.
func wireguard(t *testing.T, peers int) *kernel.WireGuard {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(wireguardPrivate+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &kernel.WireGuard{Name: "wg0", KeyFile: file, Port: 51820, MTU: 1420, OwnerTag: agentMark}
	for i := range peers {
		w.Peers = append(w.Peers, kernel.WireGuardPeer{PublicKey: wireguardPublic(i), Endpoint: netip.MustParseAddrPort("192.0.2.2:51820"),
			AllowedIPs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26)}})
	}
	return w
}

func wireguardPublic(i int) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(make([]byte, 28), uint32(i+1)))
}

// TestWireGuardErrorIsShort checks that an error of a link with many peers names the link once, the number of its peers
// and the reason.
func TestWireGuardErrorIsShort(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	w := wireguard(t, 5000)
	if err := os.Remove(w.KeyFile); err != nil {
		t.Fatal(err)
	}
	_, err := e.CompareOne(w)
	if err == nil {
		err = e.EnsureNow(w)
	}
	text := kernel.WrapObject(w, err).Error()
	if strings.Count(text, "ip link add wg0") != 1 || !strings.Contains(text, "with 5000 peers: ") || len(text) > 1000 {
		t.Errorf("an error of %d bytes: %.500s", len(text), text)
	}
	if err := kernel.WrapObject(w, os.ErrPermission); len(err.Error()) > 1000 {
		t.Errorf("an error of %d bytes: %.500s", len(err.Error()), err)
	}
}

func TestWireGuard(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "wireguard")
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	w := wireguard(t, 1000)
	number := ensured(t, e, kernel.Objects{w})
	shown := kerneltest.Run(t, "ip", "-d", "link", "show", "wg0")
	for _, want := range []string{"wireguard", "mtu 1420", "UP", "alias " + agentMark} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in %s", want, shown)
		}
	}
	w.Peers = w.Peers[:999]
	w.Peers[0].AllowedIPs = append(w.Peers[0].AllowedIPs, netip.MustParsePrefix("10.3.231.0/26"), netip.MustParsePrefix("fd00::/64"))
	w.Peers[1].Keepalive, w.Peers[1].AllowedIPs = 25, nil
	w.Peers[2].Endpoint = netip.MustParseAddrPort("[2001:db8::2]:9")
	w.Port = 51821
	d, err := e.Compare(kernel.Objects{w})
	for _, want := range []string{
		"does not listen on port 51821", wireguardPublic(0) + ": allowed-ips lack [10.3.231.0/26 fd00::/64]", wireguardPublic(1) + ": persistent-keepalive is not 25",
		wireguardPublic(1) + ": allowed-ips are not exactly []", wireguardPublic(2) + ": endpoint is not [2001:db8::2]:9", wireguardPublic(999) + " should not be there",
	} {
		if !strings.Contains(words(d), want) {
			t.Errorf("no %q in %v (%v)", want, words(d), err)
		}
	}
	if n := ensured(t, e, kernel.Objects{w}); n != number {
		t.Error("the link was created again")
	}
	if err := e.Remove(kernel.Objects{w}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Link(kernel.Host, "wg0"); err == nil {
		t.Error("it is there still")
	}
}

// TestWireGuardKeys checks that bad keys are rejected, and that errors never contain a private key.
func TestWireGuardKeys(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	e := open(t, "", kernel.Options{})
	for _, c := range []struct {
		name, want string
		spoil      func(*kernel.WireGuard)
	}{
		{"no file", "no such file", func(w *kernel.WireGuard) { w.KeyFile += "x" }},
		{"readable by others", "chmod 0600", func(w *kernel.WireGuard) { _ = os.Chmod(w.KeyFile, 0o640) }},
		{"no key", "want 32 bytes in base64", func(w *kernel.WireGuard) { _ = os.WriteFile(w.KeyFile, []byte("secret words"), 0o600) }},
		{"a peer's", `public key "x" of the peer at 192.0.2.2:51820`, func(w *kernel.WireGuard) { w.Peers[0].PublicKey = "x" }},
		{"its previous", `previous public key "x"`, func(w *kernel.WireGuard) { w.Peers[0].Previous = "x" }},
	} {
		w := wireguard(t, 1)
		c.spoil(w)
		if err := e.Apply(kernel.Objects{w}); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if s := fmt.Sprint(w); strings.Contains(s, wireguardPrivate) {
			t.Errorf("the key is shown: %s", s)
		}
	}
}
