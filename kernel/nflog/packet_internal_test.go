package nflog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

const (
	from4 = "0a000001"
	to4   = "0a000002"
	ends6 = "fd000000000000000000000000000001" + "fd000000000000000000000000000002"
)

// TestHeaders reads packets in hexadecimal, with options, extensions, fragments, and cut off.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, packet, want string }{
		{"TCP", "4500 0000 0000 0000 4006 0000" + from4 + to4 + "1000 0050", "TCP 4096 80"},
		{"options", "4600 0000 0000 0000 4011 0000" + from4 + to4 + "01010101" + "1000 0035", "UDP 4096 53"},
		{"first fragment", "4500 0000 0000 2000 4011 0000" + from4 + to4 + "1000 0035", "UDP 4096 53"},
		{"second fragment", "4500 0000 0000 0001 4011 0000" + from4 + to4 + "1000 0035", "UDP 0 0"},
		{"cut off after the header", "4500 0000 0000 0000 4006 0000" + from4 + to4 + "1000", "TCP 0 0"},
		{"a header longer than the packet", "4f00 0000 0000 0000 4006 0000" + from4 + to4 + "1000 0050", "TCP 0 0"},
		{"GRE", "4500 0000 0000 0000 402f 0000" + from4 + to4, "47 0 0"},
		{"IPv6", "6000 0000 0000 1140" + ends6 + "1000 0035 0000 0000", "UDP 4096 53"},
		{"ICMPv6", "6000 0000 0000 3a40" + ends6 + "8000 0000 0000 0000", "ICMP 0 0"},
		{"extensions", "6000 0000 0000 0040" + ends6 + "3c00 0000 0000 0000" + "3300 0000 0000 0000" + "8401 0000 0000 0000 0000 0000" + "1000 0050 0000 0000", "SCTP 4096 80"},
		{"first fragment of IPv6", "6000 0000 0000 2c40" + ends6 + "0600 0001 0000 0000" + "1000 0050 0000 0000", "TCP 4096 80"},
		{"second fragment of IPv6", "6000 0000 0000 2c40" + ends6 + "0600 0009 0000 0000" + "1000 0050 0000 0000", "TCP 0 0"},
		{"an extension that is cut off", "6000 0000 0000 0040" + ends6 + "06ff 0000 0000 0000", "TCP 0 0"},
		{"no packet", "", ""},
		{"ARP", "0001 0800 0604 0001 0000 0000 0000 0000 0000 0000 0000 0000", ""},
		{"too short", "4500 0000", ""},
		{"too short for IPv6", "6000 0000 0000 1140" + ends6[:62], ""},
	} {
		raw, err := hex.DecodeString(strings.ReplaceAll(c.packet, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		var p Packet
		got := ""
		if err := p.headers(raw); err == nil {
			got = fmt.Sprint(p.Protocol, " ", p.SrcPort, " ", p.DstPort)
			if s := p.Src.String() + " " + p.Dst.String(); s != "10.0.0.1 10.0.0.2" && s != "fd00::1 fd00::2" {
				t.Errorf("%s: %s", c.name, s)
			}
		} else if !errors.Is(err, errNoPacket) {
			t.Error(err)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestOpenError(t *testing.T) {
	t.Parallel()
	if err := openError(1, &netlink.Error{Errno: unix.EINVAL}); err != ErrNoSupport {
		t.Error(err)
	}
	if err := openError(1, unix.EPERM); err != unix.EPERM {
		t.Error(err)
	}
}

// FuzzParse checks that any message leads to a packet with addresses, or to an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte{2, 0, 0, 7, 8, 0, 10, 0, 'x', 0, 0, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		if p, err := parse(netlink.Message{Type: packetType, Body: body}); err == nil && (!p.Src.IsValid() || p.Protocol == "") {
			t.Errorf("%+v", p)
		}
	})
}
