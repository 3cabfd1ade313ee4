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

// frame is a frame that a container sends, and whether antiSpoof allows it.
type frame struct {
	name    string
	allowed bool
	typ     uint16
	packet  func(size int) []byte
	src     []byte // nil means the container's own address
	dst     []byte // nil means the next hop
	tags    []uint16
}

const (
	own4, other4, own6, other6 = "10.1.0.2", "10.1.0.77", "fd01::2", "fd01::77"
	gateway6, allNodes         = "fd01::1", "ff02::1"
)

// frames returns the frames that a container tries to send. own and spoofed are hardware addresses, and local is the
// container's link-local address.
func frames(own, spoofed []byte, local string) []frame {
	ip := func(src string, proto byte, payload []byte) func(int) []byte {
		return func(n int) []byte { return ipv4(src, "10.1.0.1", proto, payload, n) }
	}
	ip6 := func(src, dst string, next byte, payload []byte) func(int) []byte {
		return func(n int) []byte { return ipv6(src, dst, next, payload, n) }
	}
	arpFrom := func(op uint16, hw []byte, src string) func(int) []byte {
		return func(n int) []byte { return arp(op, hw, src, "10.1.0.1", n) }
	}
	const v4, v6, arpType = unix.ETH_P_IP, unix.ETH_P_IPV6, unix.ETH_P_ARP
	return []frame{
		{name: "own IPv4", allowed: true, typ: v4, packet: ip(own4, 17, udp(1, 2))},
		{name: "own IPv4, spoofed MAC", typ: v4, packet: ip(own4, 17, udp(1, 2)), src: spoofed},
		{name: "spoofed IPv4", typ: v4, packet: ip(other4, 17, udp(1, 2))},
		{name: "spoofed gateway IPv4", typ: v4, packet: ip("10.1.0.1", 17, udp(1, 2))},
		{name: "spoofed IPv4 in a VLAN", typ: v4, packet: ip(other4, 17, udp(1, 2)), tags: []uint16{5}},
		{name: "spoofed IPv4 in two VLANs", typ: v4, packet: ip(other4, 17, udp(1, 2)), tags: []uint16{5, 6}},
		{name: "no IPv4 address", typ: v4, packet: ip("0.0.0.0", 17, udp(1, 2))},
		{name: "DHCP request", typ: v4, packet: ip("0.0.0.0", 17, udp(68, 67))},
		{name: "DHCP server", typ: v4, packet: ip(own4, 17, udp(67, 68))},
		{name: "IGMP from a spoofed address", typ: v4, packet: ip(other4, 2, nil)},
		{name: "own IPv6", allowed: true, typ: v6, packet: ip6(own6, gateway6, 17, udp(1, 2))},
		{name: "own link-local", allowed: true, typ: v6, packet: ip6(local, gateway6, 17, udp(1, 2))},
		{name: "spoofed IPv6", typ: v6, packet: ip6(other6, gateway6, 17, udp(1, 2))},
		{name: "spoofed link-local", typ: v6, packet: ip6("fe80::1", gateway6, 17, udp(1, 2))},
		{name: "own IPv6, spoofed MAC", typ: v6, packet: ip6(own6, gateway6, 17, udp(1, 2)), src: spoofed},
		{name: "DHCPv6 server", typ: v6, packet: ip6(local, gateway6, 17, udp(547, 546))},
		{name: "router advertisement", typ: v6, packet: ip6(local, allNodes, 58, []byte{134, 0, 0, 0})},
		{name: "router advertisement after a header", typ: v6, packet: ip6(local, allNodes, 0, hopByHop(58, []byte{134, 0, 0, 0}))},
		{name: "redirect", typ: v6, packet: ip6(local, gateway6, 58, []byte{137, 0, 0, 0})},
		{name: "neighbour advertisement for the own address", allowed: true, typ: v6, packet: ip6(own6, gateway6, 58, neighbour(136, own6))},
		{name: "neighbour advertisement for the link-local address", allowed: true, typ: v6, packet: ip6(own6, gateway6, 58, neighbour(136, local))},
		{name: "neighbour advertisement for a spoofed address", typ: v6, packet: ip6(own6, allNodes, 58, neighbour(136, other6))},
		{name: "neighbour advertisement for the gateway", typ: v6, packet: ip6(own6, allNodes, 58, neighbour(136, gateway6))},
		{name: "neighbour advertisement after a header", typ: v6, packet: ip6(own6, allNodes, 0, hopByHop(58, neighbour(136, other6)))},
		{name: "solicitation", allowed: true, typ: v6, packet: ip6(own6, gateway6, 58, neighbour(135, gateway6))},
		{name: "duplicate detection for the own address", allowed: true, typ: v6, packet: ip6("::", "ff02::1:ff00:2", 58, neighbour(135, own6))},
		{name: "duplicate detection for a spoofed address", typ: v6, packet: ip6("::", "ff02::1:ff00:77", 58, neighbour(135, other6))},
		{name: "no IPv6 address", typ: v6, packet: ip6("::", gateway6, 17, udp(1, 2))},
		{name: "router solicitation", allowed: true, typ: v6, packet: ip6("::", "ff02::2", 58, []byte{133, 0, 0, 0})},
		{name: "listener report", allowed: true, typ: v6, packet: ip6("::", "ff02::16", 0, hopByHop(58, []byte{143, 0, 0, 0}))},
		{name: "own ARP", allowed: true, typ: arpType, packet: arpFrom(1, own, own4)},
		{name: "ARP reply for a spoofed address", typ: arpType, packet: arpFrom(2, own, other4)},
		{name: "ARP as the gateway", typ: arpType, packet: arpFrom(2, own, "10.1.0.1")},
		{name: "ARP with a spoofed MAC", typ: arpType, packet: arpFrom(2, spoofed, own4)},
		{name: "ARP probe", typ: arpType, packet: arpFrom(1, own, "0.0.0.0")},
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
				own, gateway := m.hardwareAddresses(m.must("ADD", tt.plugin, "a", conf))
				list := frames(mac(t, own), mac(t, "02:00:00:00:00:99"), linkLocalOf(mac(t, own)))
				m.addCounters(tt.plugin, len(list))
				for i, f := range list {
					if f.src == nil {
						f.src = mac(t, own)
					}
					m.send("a", ethernet(mac(t, gateway), f.src, f.typ, f.packet(packetSize(i)-4*max(len(f.tags)-1, 0)), f.tags...))
				}
				m.wantPassed(tt.plugin, list, on)
				m.must("DEL", tt.plugin, "a", conf)
			})
		}
	}
}

// wantPassed compares the frames that passed with the allowed ones. The kernel handles a container's frames in order, so
// after the allowed ones only those behind the last of them may still be on their way.
func (m *machine) wantPassed(plugin string, list []frame, on bool) {
	m.T.Helper()
	wrong := func() (out []string) {
		passed := m.passed()
		for i, f := range list {
			want := f.allowed || !on
			if plugin == "ptp" && (len(f.tags) > 0 || f.typ == 0x88b5) {
				continue // no IP hook processes it, and nothing receives it
			}
			if got := passed[packetSize(i)]; got != want {
				out = append(out, fmt.Sprintf("%s: passed: %v, want %v", f.name, got, want))
			}
		}
		return out
	}
	for end := time.Now().Add(kerneltest.Slow(5 * time.Second)); len(wrong()) > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(kerneltest.Slow(50 * time.Millisecond)) // a frame that must not pass may be late
	for _, w := range wrong() {
		m.T.Error(w)
	}
}

// packetSize returns the length of packet i, which identifies it.
func packetSize(i int) int { return 300 + i }

func (m *machine) addCounters(plugin string, n int) {
	families := map[string]string{"bridge": "prerouting"}
	if plugin == "ptp" {
		families = ipHooks()
	}
	for _, script := range counters(families, n) {
		kerneltest.Run(m.T, "nft", script)
	}
}

// ipHooks are the hooks where IP packets and ARP arrive, by family.
func ipHooks() map[string]string { return map[string]string{"inet": "prerouting", "arp": "input"} }

// counters returns nft's commands for rules that count packets by their size.
func counters(families map[string]string, n int) (scripts []string) {
	for family, hook := range families {
		script := fmt.Sprintf("add table %[1]s probe; add chain %[1]s probe c { type filter hook %s priority -200; }", family, hook)
		for i := range n {
			script += fmt.Sprintf("; add rule %s probe c meta length %d counter", family, packetSize(i))
		}
		scripts = append(scripts, script)
	}
	return scripts
}

// passed returns the sizes of the packets that passed.
func (m *machine) passed() map[int]bool {
	return counted(kerneltest.Run(m.T, "nft", "list", "ruleset"))
}

// counted returns the sizes of the packets that rules have counted.
func counted(ruleset string) map[int]bool {
	out := map[int]bool{}
	for line := range strings.Lines(ruleset) {
		var size, packets int
		if n, _ := fmt.Sscanf(strings.TrimSpace(line), "meta length %d counter packets %d", &size, &packets); n == 2 && packets > 0 {
			out[size] = true
		}
	}
	return out
}

// hardwareAddresses returns the hardware addresses of the container and of its gateway, from a result.
func (m *machine) hardwareAddresses(result string) (own, gateway string) {
	var r struct {
		Interfaces []struct{ Mac, Sandbox string }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		m.T.Fatal(err)
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
