package security

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/enforce/enforcetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// policed is a container under network policy.
type policed struct {
	mac, gateway string // hardware addresses
	v4, v6       string
}

func (c policed) local(t testing.TB) string { return linkLocalOf(mac(t, c.mac)) }

// attachPoliced attaches a container with a label app, its name.
func (m *machine) attachPoliced(name, plugin, keys string) (c policed) {
	m.T.Helper()
	const header = `"cniVersion": "1.0.0", "name": "n"`
	conf := fmt.Sprintf(`"type": %q, %s, $IPAM`, plugin, keys)
	args := "CNI_ARGS=IgnoreUnknown=1;LABELS=app:" + name
	var result string
	if m.fused {
		list := `[{` + conf + `}, {"type": "fairlead-policy"}]`
		result = m.must("ADD", "fairlead-chain", name, `{`+header+`, "type": "fairlead-chain", "plugins": `+list+`}`, args)
	} else {
		result = m.must("ADD", plugin, name, `{`+header+`, `+conf+`}`)
		m.must("ADD", "fairlead-policy", name, withPrevResult(`{`+header+`, "type": "fairlead-policy"}`, result), args)
	}
	c.mac, c.gateway = m.hardwareAddresses(result)
	var r struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil || len(r.IPs) != 2 {
		m.T.Fatalf("%v: %s", err, result)
	}
	c.v4, c.v6 = r.IPs[0].Address.Addr().String(), r.IPs[1].Address.Addr().String()
	return c
}

// tenantFrames returns frames with which the container evil tries to reach the container to, which admits web. Those that are
// allowed arrive if nothing forbids them. Of the others, the kernel removes a header, or drops what no program receives.
func tenantFrames(t testing.TB, plugin string, evil, to, web policed) (out []frame) {
	const v4, v6 = unix.ETH_P_IP, unix.ETH_P_IPV6
	add := func(works bool, name string, typ uint16, packet func(int) []byte, more ...func(*frame)) {
		f := frame{name: name, typ: typ, packet: packet, allowed: works, src: mac(t, evil.mac)}
		for _, m := range more {
			m(&f)
		}
		out = append(out, f)
	}
	from := func(src string, proto byte, payload []byte) func(int) []byte {
		return func(n int) []byte { return ipv4(src, to.v4, proto, payload, n) }
	}
	from6 := func(src string, next byte, payload []byte) func(int) []byte {
		return func(n int) []byte { return ipv6(src, to.v6, next, payload, n) }
	}
	as := func(hw string) func(*frame) { return func(f *frame) { f.src = mac(t, hw) } }
	at := func(hw string) func(*frame) { return func(f *frame) { f.dst = mac(t, hw) } }
	tagged := func(tags ...uint16) func(*frame) { return func(f *frame) { f.tags = tags } }
	bridged := plugin == "bridge"

	for proto, name := range map[byte]string{1: "ICMP", 6: "TCP", 17: "UDP", 132: "SCTP", 4: "IPIP", 41: "IPv6 in IPv4", 47: "GRE", 50: "ESP", 255: "raw"} {
		add(true, name, v4, from(evil.v4, proto, tcpOrUDP(proto)))
	}
	for _, flags := range []byte{0x10, 0x12, 0x04, 0x11, 0x3f, 0} {
		add(flags != 0 && flags != 0x3f, fmt.Sprintf("TCP with flags %#x", flags), v4, from(evil.v4, 6, tcp(flags)))
	}
	add(true, "own IPv6", v6, from6(evil.v6, 17, udp(1, 53)))
	add(true, "hop-by-hop header", v6, from6(evil.v6, 0, hopByHop(17, udp(1, 53))))
	add(true, "destination options", v6, from6(evil.v6, 60, hopByHop(17, udp(1, 53))))
	add(true, "two extension headers", v6, from6(evil.v6, 0, hopByHop(60, hopByHop(17, udp(1, 53)))))
	add(true, "no next header", v6, from6(evil.v6, 59, nil))
	add(false, "fragment header", v6, from6(evil.v6, 44, fragment6(17, 0, false)))
	add(false, "first fragment", v6, from6(evil.v6, 44, fragment6(17, 0, true)))
	add(false, "later fragment", v6, from6(evil.v6, 44, fragment6(17, 8, true)))
	add(false, "routing header 0", v6, from6(evil.v6, 43, append([]byte{17, 2, 0, 1, 0, 0, 0, 0}, append(netip.MustParseAddr(to.v6).AsSlice(), udp(1, 53)...)...)))
	add(false, "IPv4 first fragment", v4, func(n int) []byte { return fragment4(from(evil.v4, 17, udp(1, 53))(n), 0x2000) })
	add(false, "IPv4 later fragment", v4, func(n int) []byte { return fragment4(from(evil.v4, 17, udp(1, 53))(n), 0x0010) })

	add(true, "web's IPv4 address", v4, from(web.v4, 17, udp(1, 53)))
	add(true, "web's IPv6 address", v6, from6(web.v6, 17, udp(1, 53)))
	add(true, "web's IPv4 and hardware address", v4, from(web.v4, 17, udp(1, 53)), as(web.mac))
	add(true, "web's IPv6 and hardware address", v6, from6(web.v6, 17, udp(1, 53)), as(web.mac))
	add(bridged, "the gateway's IPv4 address", v4, from("10.1.0.1", 17, udp(1, 53)))
	add(bridged, "the destination's own address", v4, from(to.v4, 17, udp(1, 53)))
	add(true, "an address that nobody has", v4, from("10.1.0.200", 17, udp(1, 53)))
	add(true, "an IPv6 address that nobody has", v6, from6("fd01::dead", 17, udp(1, 53)))
	add(bridged, "own link-local address", v6, from6(evil.local(t), 17, udp(1, 53)))
	add(bridged, "to the link-local address", v6, func(n int) []byte { return ipv6(evil.v6, to.local(t), 17, udp(1, 53), n) })
	add(bridged, "between link-local addresses", v6, func(n int) []byte { return ipv6(evil.local(t), to.local(t), 17, udp(1, 53), n) })
	add(bridged, "another link-local address", v6, from6("fe80::bad", 17, udp(1, 53)))
	add(bridged, "priority tag", v4, from(evil.v4, 17, udp(1, 53)), tagged(0))
	add(bridged, "priority tag, IPv6", v6, from6(evil.v6, 17, udp(1, 53)), tagged(0))
	add(false, "VLAN tag", v4, from(evil.v4, 17, udp(1, 53)), tagged(5))
	add(false, "two VLAN tags", v4, from(evil.v4, 17, udp(1, 53)), tagged(0, 0))
	add(true, "error about an unknown connection", v4, from(evil.v4, 1, icmpError(ipv4(to.v4, evil.v4, 17, udp(53, 1), 48))))
	add(true, "error about a connection of web", v4, from(evil.v4, 1, icmpError(ipv4(web.v4, to.v4, 17, udp(7, 53), 48))))
	for _, dst := range []string{"224.0.0.251", "255.255.255.255", "10.1.0.255"} {
		for _, hw := range []string{"ff:ff:ff:ff:ff:ff", to.mac} {
			add(bridged, "to "+dst+" at "+hw, v4, func(n int) []byte { return ipv4(evil.v4, dst, 17, udp(1, 53), n) }, at(hw))
		}
	}
	for _, dst := range []string{"ff02::fb", "ff02::1", "ff0e::1"} {
		for _, src := range []string{evil.v6, evil.local(t)} {
			add(bridged, "from "+src+" to "+dst, v6, func(n int) []byte { return ipv6(src, dst, 17, udp(1, 53), n) }, at("33:33:00:00:00:01"))
		}
	}
	if bridged {
		arp4 := func(op uint16, hw, src string) func(int) []byte {
			return func(n int) []byte { return arp(op, mac(t, hw), src, to.v4, n) }
		}
		add(true, "ARP reply as web", unix.ETH_P_ARP, arp4(2, evil.mac, web.v4))
		add(true, "ARP reply as the gateway", unix.ETH_P_ARP, arp4(2, evil.mac, "10.1.0.1"))
		add(true, "ARP request as web", unix.ETH_P_ARP, arp4(1, web.mac, web.v4))
		add(true, "neighbour advertisement for web", v6, from6(evil.v6, 58, neighbour(136, web.v6)))
		add(true, "neighbour advertisement for the gateway", v6, from6(evil.local(t), 58, neighbour(136, "fd01::1")))
	}
	return out
}

func tcpOrUDP(proto byte) []byte {
	if proto == 6 {
		return tcp(2)
	}
	return udp(1, 53)
}

// tcp returns a TCP header with flags: RFC 9293.
func tcp(flags byte) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, 4000), 53)
	return append(b, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0)
}

// fragment6 returns a fragment header of IPv6, and UDP: RFC 8200.
func fragment6(next byte, offset uint16, more bool) []byte {
	if more {
		offset |= 1
	}
	b := binary.BigEndian.AppendUint16([]byte{next, 0}, offset)
	return append(append(b, 0, 0, 0, 9), udp(1, 53)...)
}

// fragment4 makes an IPv4 packet a fragment: its flags and offset.
func fragment4(packet []byte, field uint16) []byte {
	binary.BigEndian.PutUint16(packet[6:], field)
	packet[10], packet[11] = 0, 0
	binary.BigEndian.PutUint16(packet[10:], kerneltest.Checksum(packet[:20]))
	return packet
}

// icmpError returns "port unreachable" about a packet.
func icmpError(packet []byte) []byte { return append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, packet...) }

// TestPolicyTenant lets root in a container try to get packets past network policy: into a container that admits only web,
// and out of one that may reach nobody. Without policy and antiSpoof, the same frames arrive.
func TestPolicyTenant(t *testing.T) {
	for _, plugin := range []string{"ptp", "bridge"} {
		for _, c := range []struct {
			name, policies string
			works, fused   bool
		}{
			{"ingress", "policy: db\nfor: app=db\nin:\n- from: app=web\n", false, false},
			{"ingress fused", "policy: db\nfor: app=db\nin:\n- from: app=web\n", false, true},
			{"egress", "policy: evil\nfor: app=evil\nout:\n- to: app=nobody\n", false, false},
			{"nothing", "policy: none\nfor: app=nobody\nin: []\n", true, false},
		} {
			t.Run(plugin+" "+c.name, func(t *testing.T) {
				t.Parallel()
				keys := `"antiSpoof": true`
				if plugin == "bridge" {
					kerneltest.Needs(t, "br_netfilter", "nftables for bridges")
					keys = `"isGateway": true, "bridgeNetfilter": true, "antiSpoof": true`
				}
				if c.works {
					keys = strings.Replace(keys, `"antiSpoof": true`, `"antiSpoof": false`, 1)
				}
				m := newMachine(t, "evil", "db", "web")
				m.fused = c.fused
				for _, key := range []string{"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"} {
					kerneltest.Run(t, "sysctl", "-qw", key)
				}
				enforcetest.Start(t, local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run")), c.policies)
				evil, db, web := m.attachPoliced("evil", plugin, keys), m.attachPoliced("db", plugin, keys), m.attachPoliced("web", plugin, keys)
				list := tenantFrames(t, plugin, evil, db, web)
				for _, script := range counters(ipHooks(), len(list)) {
					kerneltest.In(t, m.Netns["db"], "nft", script)
				}
				kerneltest.In(t, m.Netns["web"], "ping", "-c1", "-W5", db.v4) // also teaches the bridge where they are
				kerneltest.In(t, m.Netns["web"], "ping", "-c1", "-W5", db.v6)
				kerneltest.In(t, m.Netns["evil"], "nft", "flush", "ruleset")
				for i, f := range list {
					switch {
					case plugin == "ptp":
						f.dst = mac(t, evil.gateway)
					case f.dst == nil:
						f.dst = mac(t, db.mac)
					}
					m.send("evil", ethernet(f.dst, f.src, f.typ, f.packet(packetSize(i)-4*max(len(f.tags)-1, 0)), f.tags...))
				}
				m.wantArrived("db", list, c.works)
			})
		}
	}
}

// wantArrived compares the frames that arrived with those that work, or with none.
func (m *machine) wantArrived(container string, list []frame, works bool) {
	m.T.Helper()
	arrived := func() (names []string) {
		sizes := counted(kerneltest.In(m.T, m.Netns[container], "nft", "list", "ruleset"))
		for i, f := range list {
			if sizes[packetSize(i)] {
				names = append(names, f.name)
			}
		}
		return names
	}
	var want []string
	for _, f := range list {
		if works && f.allowed {
			want = append(want, f.name)
		}
	}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(arrived(), s) })
	}
	for end := time.Now().Add(kerneltest.Slow(3 * time.Second)); len(missing()) > 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(kerneltest.Slow(100 * time.Millisecond)) // what must not arrive may be late
	for _, name := range missing() {
		m.T.Errorf("without policy, this does not arrive: the attack does not work in this test: %s", name)
	}
	for _, name := range arrived() {
		if !works {
			m.T.Errorf("arrived: %s", name)
		}
	}
}
