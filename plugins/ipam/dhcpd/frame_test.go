package dhcpd

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// answer returns a server's frame to a client: the output of frame with the ports exchanged.
func answer(from, to endpoint, payload string) []byte {
	b := frame(from, to, []byte(payload))
	copy(b[34:], []byte{0, serverPort, 0, clientPort})
	return b
}

func here(last byte) endpoint {
	return endpoint{net.HardwareAddr{2, 0, 0, 0, 0, last}, netip.AddrFrom4([4]byte{10, 0, 0, last})}
}

// TestFrame compares with a datagram whose checksums were computed manually.
func TestFrame(t *testing.T) {
	t.Parallel()
	got := hex.EncodeToString(frame(endpoint{net.HardwareAddr{2, 0, 0, 0, 0, 5}, netip.IPv4Unspecified()}, broadcast(), []byte("odd")))
	const want = "ffffffffffff" + "020000000005" + "0800" + "4500001f00000000" + "4011" + "7acf" + "00000000" + "ffffffff" + "00440043000b" + "2bed" + "6f6464"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	payload, from, err := datagram(answer(here(1), here(9), "payload"))
	if err != nil || string(payload) != "payload" || from.ip != here(1).ip || !bytes.Equal(from.mac, here(1).mac) {
		t.Errorf("%q from %v, %v", payload, from, err)
	}
}

// TestDatagram checks that other or damaged frames are ignored, and that padding is removed.
func TestDatagram(t *testing.T) {
	t.Parallel()
	good := answer(here(1), here(9), "payload")
	if p, _, err := datagram(append(bytes.Clone(good), 0, 0, 0)); err != nil || string(p) != "payload" {
		t.Errorf("padded: %q, %v", p, err)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"short":         func(b []byte) []byte { return b[:20] },
		"cut":           func(b []byte) []byte { return b[:len(b)-1] },
		"another type":  func(b []byte) []byte { b[12] = 0x86; return b },
		"IPv6":          func(b []byte) []byte { b[14] = 0x65; return b },
		"short header":  func(b []byte) []byte { b[14] = 0x44; return b },
		"a fragment":    func(b []byte) []byte { b[20] = 0x20; return b },
		"TCP":           func(b []byte) []byte { b[23] = 6; return b },
		"IP checksum":   func(b []byte) []byte { b[25]++; return b },
		"to elsewhere":  func(b []byte) []byte { b[37]++; return b },
		"UDP too long":  func(b []byte) []byte { b[39]++; return b },
		"UDP too short": func(b []byte) []byte { b[39] = 7; return b },
	} {
		if p, _, err := datagram(spoil(bytes.Clone(good))); err == nil {
			t.Errorf("%s: %q", name, p)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	f.Add(answer(here(1), here(9), "payload"))
	f.Add([]byte(strings.Repeat("E", 60)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, from, err := datagram(b); err == nil && (len(p) > len(b)-etherLen-ipLen-udpLen || !from.ip.Is4() || len(from.mac) != 6) {
			t.Errorf("%d bytes from %v of a frame of %d", len(p), from, len(b))
		}
	})
}

// TestServerWithoutID checks where a renewal is sent if the server's acknowledgement lacks its ID.
func TestServerWithoutID(t *testing.T) {
	t.Parallel()
	p := &v4{Server: here(1).mac}
	ack := &dhcpv4.DHCPv4{Options: dhcpv4.Options{}}
	if got := p.server(ack); got.ip != broadcast().ip || !bytes.Equal(got.mac, broadcast().mac) {
		t.Errorf("without an ID: %v", got)
	}
	ack.UpdateOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 0, 0, 1)))
	if got := p.server(ack); got.ip != here(1).ip || !bytes.Equal(got.mac, here(1).mac) {
		t.Errorf("with an ID: %v", got)
	}
}

// TestOptionOverload reads options in the fields for a file and a server's name.
func TestOptionOverload(t *testing.T) {
	t.Parallel()
	message := func(where ...byte) []byte {
		m := &dhcpv4.DHCPv4{OpCode: dhcpv4.OpcodeBootReply, HWType: 1, ClientHWAddr: here(9).mac, Options: dhcpv4.Options{53: {5}, 6: {10, 0, 0, 8}}}
		if where != nil {
			m.Options[52] = where
		}
		b := m.ToBytes()
		copy(b[44:], []byte{1, 4, 255, 255, 255, 0, 255})
		copy(b[108:], []byte{3, 4, 10, 0, 0, 1, 6, 4, 10, 0, 0, 9, 255})
		return b
	}
	for _, c := range []struct {
		where []byte
		want  string
	}{
		{nil, "<nil> [] [10.0.0.8]"},
		{[]byte{1}, "<nil> [10.0.0.1] [10.0.0.8 10.0.0.9]"},
		{[]byte{2}, "ffffff00 [] [10.0.0.8]"},
		{[]byte{3}, "ffffff00 [10.0.0.1] [10.0.0.8 10.0.0.9]"},
		{[]byte{3, 3}, "<nil> [] [10.0.0.8]"},
	} {
		m, err := parse4(message(c.where...))
		if err != nil {
			t.Fatal(err)
		}
		stored, err := dhcpv4.FromBytes(m.ToBytes())
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(stored.SubnetMask(), stored.Router(), stored.DNS()); got != c.want {
			t.Errorf("overload %v: %s, want %s", c.where, got, c.want)
		}
	}
	torn := message(2)
	copy(torn[44:], bytes.Repeat([]byte{1, 200}, 32))
	if m, err := parse4(torn); err == nil {
		t.Errorf("torn options: %v", m)
	}
}
