package security

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// frame is a frame that a container sends. It records whether antiSpoof passes it.
type frame struct {
	name   string
	passes bool
	typ    uint16
	packet func(size int) []byte
	src    []byte // nil: the container's own
	tags   []uint16
}

const (
	me4, other4, me6, other6 = "10.1.0.2", "10.1.0.77", "fd01::2", "fd01::77"
	gateway6, allNodes       = "fd01::1", "ff02::1"
)

// frames returns the frames that a container with a hardware address tries to send.
func frames(own, foreign []byte, local string) []frame {
	ip := func(src string, proto byte, payload []byte) func(int) []byte {
		return func(n int) []byte { return ipv4(src, "10.1.0.1", proto, payload, n) }
	}
	ip6 := func(src, dst string, next byte, payload []byte) func(int) []byte {
		return func(n int) []byte { return ipv6(src, dst, next, payload, n) }
	}
	who := func(op uint16, hw []byte, src string) func(int) []byte {
		return func(n int) []byte { return arp(op, hw, src, "10.1.0.1", n) }
	}
	const v4, v6, arpType = unix.ETH_P_IP, unix.ETH_P_IPV6, unix.ETH_P_ARP
	return []frame{
		{name: "own IPv4", passes: true, typ: v4, packet: ip(me4, 17, udp(1, 2))},
		{name: "own IPv4, foreign MAC", typ: v4, packet: ip(me4, 17, udp(1, 2)), src: foreign},
		{name: "foreign IPv4", typ: v4, packet: ip(other4, 17, udp(1, 2))},
		{name: "gateway's IPv4", typ: v4, packet: ip("10.1.0.1", 17, udp(1, 2))},
		{name: "foreign IPv4 in a VLAN", typ: v4, packet: ip(other4, 17, udp(1, 2)), tags: []uint16{5}},
		{name: "foreign IPv4 in two VLANs", typ: v4, packet: ip(other4, 17, udp(1, 2)), tags: []uint16{5, 6}},
		{name: "no IPv4 address", typ: v4, packet: ip("0.0.0.0", 17, udp(1, 2))},
		{name: "DHCP, of no client", typ: v4, packet: ip("0.0.0.0", 17, udp(68, 67))},
		{name: "DHCP server", typ: v4, packet: ip(me4, 17, udp(67, 68))},
		{name: "IGMP of a foreign one", typ: v4, packet: ip(other4, 2, nil)},
		{name: "own IPv6", passes: true, typ: v6, packet: ip6(me6, gateway6, 17, udp(1, 2))},
		{name: "own link-local", passes: true, typ: v6, packet: ip6(local, gateway6, 17, udp(1, 2))},
		{name: "foreign IPv6", typ: v6, packet: ip6(other6, gateway6, 17, udp(1, 2))},
		{name: "foreign link-local", typ: v6, packet: ip6("fe80::1", gateway6, 17, udp(1, 2))},
		{name: "own IPv6, foreign MAC", typ: v6, packet: ip6(me6, gateway6, 17, udp(1, 2)), src: foreign},
		{name: "DHCPv6 server", typ: v6, packet: ip6(local, gateway6, 17, udp(547, 546))},
		{name: "router advertisement", typ: v6, packet: ip6(local, allNodes, 58, []byte{134, 0, 0, 0})},
		{name: "router advertisement after a header", typ: v6, packet: ip6(local, allNodes, 0, hopByHop(58, []byte{134, 0, 0, 0}))},
		{name: "redirect", typ: v6, packet: ip6(local, gateway6, 58, []byte{137, 0, 0, 0})},
		{name: "advertisement of its own", passes: true, typ: v6, packet: ip6(me6, gateway6, 58, neighbour(136, me6))},
		{name: "advertisement of the link-local", passes: true, typ: v6, packet: ip6(me6, gateway6, 58, neighbour(136, local))},
		{name: "advertisement of a foreign one", typ: v6, packet: ip6(me6, allNodes, 58, neighbour(136, other6))},
		{name: "advertisement of the gateway", typ: v6, packet: ip6(me6, allNodes, 58, neighbour(136, gateway6))},
		{name: "advertisement after a header", typ: v6, packet: ip6(me6, allNodes, 0, hopByHop(58, neighbour(136, other6)))},
		{name: "solicitation", passes: true, typ: v6, packet: ip6(me6, gateway6, 58, neighbour(135, gateway6))},
		{name: "duplicate detection of its own", passes: true, typ: v6, packet: ip6("::", "ff02::1:ff00:2", 58, neighbour(135, me6))},
		{name: "duplicate detection of a foreign one", typ: v6, packet: ip6("::", "ff02::1:ff00:77", 58, neighbour(135, other6))},
		{name: "no IPv6 address", typ: v6, packet: ip6("::", gateway6, 17, udp(1, 2))},
		{name: "router solicitation", passes: true, typ: v6, packet: ip6("::", "ff02::2", 58, []byte{133, 0, 0, 0})},
		{name: "listener report", passes: true, typ: v6, packet: ip6("::", "ff02::16", 0, hopByHop(58, []byte{143, 0, 0, 0}))},
		{name: "own ARP", passes: true, typ: arpType, packet: who(1, own, me4)},
		{name: "ARP for a foreign one", typ: arpType, packet: who(2, own, other4)},
		{name: "ARP as the gateway", typ: arpType, packet: who(2, own, "10.1.0.1")},
		{name: "ARP with a foreign MAC", typ: arpType, packet: who(2, foreign, me4)},
		{name: "ARP probe", typ: arpType, packet: who(1, own, "0.0.0.0")},
		{name: "neither IP nor ARP", typ: 0x88b5, packet: func(n int) []byte { return make([]byte, n) }},
	}
}

// TestAntiSpoofFrames checks packet by packet what a container may send through its host end. A rule of the test, after
// our rules, counts the packets that pass.
func TestAntiSpoofFrames(t *testing.T) {
	for _, tt := range []struct{ plugin, keys, needs string }{
		{"bridge", `"isGateway": true`, "nftables for bridges"},
		{"ptp", `"ipMasq": true`, ""},
	} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.plugin, " ", on), func(t *testing.T) {
				t.Parallel()
				if tt.needs != "" {
					kerneltest.Needs(t, tt.needs)
				}
				m := newMachine(t, "a")
				conf := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "n", "type": %q, %s, "antiSpoof": %v, $IPAM}`, tt.plugin, tt.keys, on)
				own, gateway := m.ends(m.must("ADD", tt.plugin, "a", conf))
				list := frames(mac(t, own), mac(t, "02:00:00:00:00:99"), linkLocalOf(mac(t, own)))
				m.counters(tt.plugin, len(list))
				for i, f := range list {
					if f.src == nil {
						f.src = mac(t, own)
					}
					m.send("a", ethernet(mac(t, gateway), f.src, f.typ, f.packet(sizeOf(i)-4*max(len(f.tags)-1, 0)), f.tags...))
				}
				time.Sleep(50 * time.Millisecond)
				for i, f := range list {
					want := f.passes || !on
					if tt.plugin == "ptp" && (len(f.tags) > 0 || f.typ == 0x88b5) {
						continue // no IP hook sees it, and nothing receives it
					}
					if got := m.counted(i); got != want {
						t.Errorf("%s: passes: %v, want %v", f.name, got, want)
					}
				}
				m.must("DEL", tt.plugin, "a", conf)
			})
		}
	}
}

// sizeOf returns the length of packet i, which identifies it.
func sizeOf(i int) int { return 300 + i }

func (m *machine) counters(plugin string, n int) {
	families := map[string]string{"bridge": "prerouting"}
	if plugin == "ptp" {
		families = map[string]string{"inet": "prerouting", "arp": "input"}
	}
	for family, hook := range families {
		script := fmt.Sprintf("add table %[1]s probe; add chain %[1]s probe c { type filter hook %s priority -200; }", family, hook)
		for i := range n {
			script += fmt.Sprintf("; add rule %s probe c meta length %d counter", family, sizeOf(i))
		}
		kerneltest.Run(m.t, "nft", script)
	}
}

func (m *machine) counted(i int) bool {
	for line := range strings.Lines(kerneltest.Run(m.t, "nft", "list", "ruleset")) {
		if strings.Contains(line, fmt.Sprintf("meta length %d counter", sizeOf(i))) && !strings.Contains(line, "packets 0 ") {
			return true
		}
	}
	return false
}

// ends returns the hardware addresses of the container's end and of its gateway.
func (m *machine) ends(result string) (own, gateway string) {
	var r struct {
		Interfaces []struct{ Mac, Sandbox string }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		m.t.Fatal(err)
	}
	for _, i := range r.Interfaces {
		switch {
		case i.Sandbox != "":
			own = i.Mac
		case gateway == "":
			gateway = i.Mac
		}
	}
	return own, gateway
}

func linkLocalOf(hw []byte) string {
	return fmt.Sprintf("fe80::%02x%02x:%02xff:fe%02x:%02x%02x", hw[0]^2, hw[1], hw[2], hw[3], hw[4], hw[5])
}
