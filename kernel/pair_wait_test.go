package kernel_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestFirstPacket checks that the first packet to a container is not dropped at the host end, however early it is sent.
func TestFirstPacket(t *testing.T) {
	kerneltest.Host(t)
	for range 20 {
		e := open(t, kerneltest.Netns(t), kernel.Options{})
		list := kernel.Objects{
			&kernel.Veth{Name: "first", MAC: "02:00:00:00:00:01", PeerName: "eth0", PeerMAC: "02:00:00:00:00:02", PeerSide: kernel.Container},
			&kernel.Addr{Link: "first", Prefix: netip.MustParsePrefix("192.0.2.1/24")},
			&kernel.Up{Link: "first"},
			&kernel.Addr{In: kernel.Container, Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.2/24")},
			&kernel.Up{In: kernel.Container, Link: "eth0"},
		}
		if err := e.Apply(list); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("udp", "192.0.2.2:9")
		if err == nil {
			_, err = c.Write([]byte("first"))
			c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if out := kerneltest.Run(t, "ip", "-s", "link", "show", "first"); dropped(out) != "0" {
			t.Fatalf("the first packet was dropped:\n%s", out)
		}
		if err := e.Remove(list); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFirstPacket6 checks that the container accepts the first packet to its IPv6 address instead of forwarding it.
func TestFirstPacket6(t *testing.T) {
	kerneltest.Host(t)
	for range 40 {
		netns := kerneltest.Netns(t)
		e := open(t, netns, kernel.Options{})
		to := netip.MustParseAddr("fd00::2")
		list := kernel.Objects{
			&kernel.Veth{Name: "first", MAC: "02:00:00:00:00:01", PeerName: "eth0", PeerMAC: "02:00:00:00:00:02", PeerSide: kernel.Container},
			&kernel.Up{Link: "first"},
			&kernel.Up{In: kernel.Container, Link: "eth0"},
			&kernel.Addr{Link: "first", Prefix: netip.MustParsePrefix("fd00::1/64")},
			&kernel.Neigh{Link: "first", IP: to, MAC: "02:00:00:00:00:02"},
			&kernel.Addr{In: kernel.Container, Link: "eth0", Prefix: netip.PrefixFrom(to, 64)},
		}
		if err := e.Apply(list); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("udp", "[fd00::2]:9")
		if err == nil {
			_, err = c.Write([]byte("first"))
			c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(kerneltest.In(t, netns, "cat", "/proc/net/snmp6"), "\n") {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "Ip6InAddrErrors" && f[1] != "0" {
				t.Fatalf("it was not the container's: %s", line)
			}
		}
		if err := e.Remove(list); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPortWithoutAddress checks that the port of a container without addresses forwards when Apply returns.
func TestPortWithoutAddress(t *testing.T) {
	kerneltest.Host(t)
	for range 10 {
		e := open(t, kerneltest.Netns(t), kernel.Options{})
		list := kernel.Objects{
			&kernel.Bridge{Name: "br0", MAC: "02:00:00:00:00:03"}, &kernel.Up{Link: "br0", IsShared: true},
			&kernel.Veth{Name: "port", MAC: "02:00:00:00:00:01", PeerName: "eth0", PeerMAC: "02:00:00:00:00:02", PeerSide: kernel.Container, Master: "br0"},
			&kernel.Up{Link: "port"},
			&kernel.Up{In: kernel.Container, Link: "eth0"},
		}
		if err := e.Apply(list); err != nil {
			t.Fatal(err)
		}
		// Since kernel 6.9, ip(8) would make the kernel check the carrier. bridge(8) does not.
		if out := kerneltest.Run(t, "bridge", "link", "show"); !strings.Contains(out, "master br0 state forwarding") {
			t.Fatalf("the port does not forward: %s", out)
		}
		if err := e.Remove(list); err != nil {
			t.Fatal(err)
		}
	}
}

// dropped returns the number of outgoing packets that a link dropped.
func dropped(out string) string {
	_, tx, _ := strings.Cut(out, "TX:")
	lines := strings.Split(tx, "\n")
	if len(lines) < 2 {
		return out
	}
	words := strings.Fields(lines[1])
	if len(words) < 4 {
		return out
	}
	return words[3]
}
