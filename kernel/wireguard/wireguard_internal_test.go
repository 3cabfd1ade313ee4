package wireguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

func key(b byte) (k Key) { k[0] = b; return k }

func prefixes(s string) (out []netip.Prefix) {
	for f := range strings.FieldsSeq(s) {
		out = append(out, netip.MustParsePrefix(f))
	}
	return out
}

func TestWireGuardChanges(t *testing.T) {
	t.Parallel()
	end, other := netip.MustParseAddrPort("192.0.2.2:51820"), netip.MustParseAddrPort("[2001:db8::2]:51820")
	a := func(allowed string) PeerConfig {
		return PeerConfig{PublicKey: key(1), Endpoint: end, AllowedIPs: prefixes(allowed)}
	}
	has := func(at netip.AddrPort, handshake time.Time, allowed string) *Peer {
		return &Peer{endpoint: at, handshake: handshake, allowed: prefixes(allowed)}
	}
	keyChange := PeerConfig{PublicKey: key(2), PreviousKey: key(1), Endpoint: end, AllowedIPs: prefixes("10.0.0.0/26")}
	old, now := time.Now().Add(-time.Hour), time.Now()
	both := func(first, second time.Time, allowed1, allowed2 string) map[Key]*Peer {
		return map[Key]*Peer{key(1): has(end, first, allowed1), key(2): has(end, second, allowed2)}
	}
	type peers = map[Key]*Peer
	for _, c := range []struct {
		name string
		want []PeerConfig
		have peers
		out  string
	}{
		{"unchanged", []PeerConfig{a("10.0.0.0/26")}, peers{key(1): has(end, old, "10.0.0.0/26")}, ""},
		{"another order", []PeerConfig{a("10.0.0.0/26 fd00::/64")}, peers{key(1): has(end, old, "fd00::/64 10.0.0.0/26")}, ""},
		{"a new peer", []PeerConfig{a("10.0.0.0/26")}, nil, "1 is missing"},
		{"an unwanted peer", nil, peers{key(3): has(end, old, "")}, "3 should not be there"},
		{"one more address", []PeerConfig{a("10.0.0.0/26 10.0.1.0/26")}, peers{key(1): has(end, old, "10.0.0.0/26")}, "1: allowed-ips lack [10.0.1.0/26]"},
		{"one address less", []PeerConfig{a("10.0.0.0/26")}, peers{key(1): has(end, old, "10.0.0.0/26 10.0.1.0/26")}, "1: allowed-ips are not exactly [10.0.0.0/26]"},
		{"a live session from another endpoint", []PeerConfig{a("")}, peers{key(1): has(other, now, "")}, ""},
		{"no session, another endpoint", []PeerConfig{a("")}, peers{key(1): has(other, old, "")}, "1: endpoint is not 192.0.2.2:51820"},
		{"keepalive", []PeerConfig{{PublicKey: key(1), Endpoint: end, Keepalive: 25}}, peers{key(1): has(end, old, "")}, "1: persistent-keepalive is not 25"},
		{"key change: the new key is missing", []PeerConfig{keyChange}, peers{key(1): has(end, now, "10.0.0.0/26")}, "2 is missing"},
		{"key change: the old key is in use", []PeerConfig{keyChange}, both(now, old, "10.0.0.0/26", ""), ""},
		{"key change: the new key is in use", []PeerConfig{keyChange}, both(old, now, "10.0.0.0/26", ""), "2: allowed-ips lack [10.0.0.0/26], 1: allowed-ips are not exactly []"},
		{"after a key change", []PeerConfig{{PublicKey: key(2), Endpoint: end, AllowedIPs: prefixes("10.0.0.0/26")}}, both(old, now, "10.0.0.0/26", ""), "2: allowed-ips lack [10.0.0.0/26], 1 should not be there"},
	} {
		w := &Config{ListenPort: 51820, Peers: c.want}
		got := strings.Join(w.Changes(&Device{ListenPort: 51820, Peers: c.have}).Describe(), ", ")
		for n := byte(1); n < 4; n++ {
			got = strings.ReplaceAll(got, "peer "+key(n).String(), fmt.Sprint(n))
		}
		if got != c.out {
			t.Errorf("%s: %q, want %q", c.name, got, c.out)
		}
	}
}

// TestNewPort checks that peers with a live session follow a port that changes on all nodes, and that a peer whose packets
// come from another port, such as that of a NAT or its former one, keeps its endpoint.
func TestNewPort(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort
	want := &Config{ListenPort: 2000, Peers: []PeerConfig{{PublicKey: key(1), Endpoint: at("192.0.2.2:2000")}}}
	for _, c := range []struct {
		listens  int
		from, to string
	}{
		{1000, "192.0.2.2:1000", "192.0.2.2:2000"},
		{1000, "192.0.2.2:5000", ""},
		{1000, "192.0.2.2:2000", ""},
		{2000, "192.0.2.2:1000", ""},
		{2000, "198.51.100.1:2000", ""},
	} {
		have := &Device{ListenPort: c.listens, Peers: map[Key]*Peer{key(1): {endpoint: at(c.from), handshake: time.Now()}}}
		got := ""
		for _, p := range want.Changes(have).peers {
			got = p.endpoint.String()
		}
		if got != c.to {
			t.Errorf("the device listens on %d, packets come from %s: endpoint %q, want %q", c.listens, c.from, got, c.to)
		}
	}
}

// TestWireGuardMessages splits a thousand peers, one of them with a thousand addresses, into messages of limited size.
// Parsing the messages must return the same peers.
func TestWireGuardMessages(t *testing.T) {
	t.Parallel()
	w := &Config{ListenPort: 7, PrivateKey: key(9)}
	for i := range 1000 {
		k := key(1)
		k[1], k[2] = byte(i), byte(i>>8)
		p := PeerConfig{PublicKey: k, Endpoint: netip.MustParseAddrPort("[2001:db8::2]:51820"), Keepalive: 5, AllowedIPs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26)}}
		for j := range 1000 * (i / 999) {
			p.AllowedIPs = append(p.AllowedIPs, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(j >> 8), byte(j), 0}), 32))
		}
		w.Peers = append(w.Peers, p)
	}
	empty := &Device{Peers: map[Key]*Peer{}}
	c := w.Changes(empty)
	have := &Device{Peers: map[Key]*Peer{}}
	list := c.messages("wg0")
	for _, m := range list {
		if len(m) > 32<<10 {
			t.Errorf("a message of %d bytes", len(m))
		}
		netlink.EachAttr(m[netlink.GenericHeaderSize:], have.attr)
	}
	if len(list) < 4 {
		t.Errorf("%d messages", len(list))
	}
	if rest := w.Changes(have); !rest.Empty() {
		t.Errorf("read back they lack %v", rest.Describe())
	}
	text, err := parseDevice(strings.Replace(c.text(), "replace_allowed_ips=true\n", "", -1))
	if err != nil || !w.Changes(text).Empty() {
		t.Errorf("read back as text (%v) they lack %v", err, w.Changes(text).Describe())
	}
	if s := fmt.Sprint(c.Describe()); strings.Contains(s, key(9).String()) {
		t.Error("the private key is shown")
	}
}

func TestWireGuardAnswers(t *testing.T) {
	t.Parallel()
	d, err := parseDevice("listen_port=7\npublic_key=" + strings.Repeat("01", 32) + "\nendpoint=192.0.2.1:9\nlast_handshake_time_sec=5\nlast_handshake_time_nsec=6\nrx_bytes=1\n")
	var k Key
	for i := range k {
		k[i] = 1
	}
	want := &Peer{endpoint: netip.MustParseAddrPort("192.0.2.1:9"), handshake: time.Unix(5, 6)}
	if err != nil || d.ListenPort != 7 || !reflect.DeepEqual(d.Peers[k], want) {
		t.Errorf("%+v, %v", d, err)
	}
	for _, bad := range []string{"private_key=secret\n", "listen_port=x\n", "endpoint=nowhere\n", "allowed_ip=10\n", "public_key=\n", "persistent_keepalive_interval=off\n", "last_handshake_time_sec=a\n"} {
		if _, err := parseDevice(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// served returns a device whose process answers each connection with a function.
func served(t *testing.T, answer func(net.Conn)) SocketDevice {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wg.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			_ = c.Close()
		}
	}()
	return SocketDevice{Path: path}
}

// TestEndedDevice checks the error for a process that ends before it has replied.
func TestEndedDevice(t *testing.T) {
	t.Parallel()
	_, err := served(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 100))
		_, _ = c.Write([]byte("listen_port=7\n"))
	}).Get()
	if err == nil || !strings.HasSuffix(err.Error(), "the reply ends after 14 bytes: unexpected EOF") {
		t.Errorf("%v", err)
	}
}

// TestInterruptedSet verifies that signals do not end a large request to a device that is slow to read it.
func TestInterruptedSet(t *testing.T) {
	t.Parallel()
	var c Changes
	for i := range 5000 { // more than a socket's buffer holds
		c.peers = append(c.peers, PeerChange{key: Key{byte(i), byte(i >> 8), 1}, add: true, keepalive: 25})
	}
	size := int64(len("set=1\n" + c.text() + "\n"))
	d := served(t, func(conn net.Conn) {
		time.Sleep(100 * time.Millisecond)
		_, _ = io.CopyN(io.Discard, conn, size)
		_, _ = io.WriteString(conn, "errno=0\n\n")
	})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, end := unix.Gettid(), make(chan struct{})
	defer close(end)
	go func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // Go ignores it
			}
		}
	}()
	if err := d.Set(c); err != nil {
		t.Error(err)
	}
}

// TestHandshakeTime checks the time of a peer's last handshake as the kernel sends it.
func TestHandshakeTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		seconds, nanoseconds uint64
		cut                  int
		want                 time.Time
	}{
		{5, 6, 16, time.Unix(5, 6)}, {0, 7, 16, time.Unix(0, 7)}, {5, 0, 24, time.Unix(5, 0)},
		{0, 0, 16, time.Time{}}, {5, 6, 15, time.Time{}},
	} {
		v := binary.NativeEndian.AppendUint64(nil, c.seconds)
		v = append(binary.NativeEndian.AppendUint64(v, c.nanoseconds), make([]byte, 8)...)
		var peer, peers, body netlink.Buffer
		k := key(3)
		peer.Bytes(unix.WGPEER_A_PUBLIC_KEY, k[:])
		peer.Bytes(unix.WGPEER_A_LAST_HANDSHAKE_TIME, v[:c.cut])
		peers.Bytes(0, peer)
		body.Bytes(unix.WGDEVICE_A_PEERS, peers)
		d := &Device{Peers: map[Key]*Peer{}}
		netlink.EachAttr(body, d.attr)
		if p := d.Peers[k]; p == nil || !p.handshake.Equal(c.want) {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

func FuzzWireGuardAnswers(f *testing.F) {
	f.Add("listen_port=7\npublic_key=" + strings.Repeat("01", 32) + "\nallowed_ip=10.0.0.0/8\n")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseDevice(s) })
}

func TestSocketAddresses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"192.0.2.1:51820", "[2001:db8::1]:1"} {
		a := netip.MustParseAddrPort(s)
		raw := appendSocketAddress(nil, a)
		if got := socketAddress(raw); got != a {
			t.Errorf("%s became %s", a, got)
		}
		if size := map[bool]int{true: unix.SizeofSockaddrInet4, false: unix.SizeofSockaddrInet6}[a.Addr().Is4()]; len(raw) != size {
			t.Errorf("%d bytes, want %d", len(raw), size)
		}
	}
	if socketAddress([]byte{1, 2}).IsValid() {
		t.Error("two bytes are an address")
	}
}

// TestReadableKey checks the error for a private key that others can read.
func TestReadableKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o640)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPrivateKey(file); err == nil || !strings.Contains(err.Error(), `others than its owner can use it (mode 0640): run "chmod 0600 `+file+`"`) {
		t.Errorf("%v", err)
	}
}
