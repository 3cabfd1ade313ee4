package kernel_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// The first packet to a container leaves the host's end of its link, however soon it
// is sent and however much the kernel has to do.
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
			&kernel.Carried{Link: "first"},
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

// dropped is what a link dropped of what it was to send.
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
