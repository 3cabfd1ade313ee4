package security

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestHostileContainer lets a container with root in its namespace attack its network. Its DEL still succeeds and
// leaves nothing, and its neighbour's state is unchanged.
func TestHostileContainer(t *testing.T) {
	attacks := map[string][]string{
		"renames":           {"ip link set eth0 down", "ip link set eth0 name evil", "ip link set evil up"},
		"deletes":           {"ip link del eth0"},
		"replaces":          {"ip link del eth0", "ip link add eth0 type veth peer name eth1"},
		"swaps":             {"ip link set eth0 name evil", "ip link add eth0 type bridge", "ip link set evil master eth0"},
		"takes down":        {"ip link set eth0 down"},
		"adds addresses":    {"ip addr add 10.1.0.3/24 dev eth0", "ip addr add 10.1.0.1/24 dev eth0", "ip addr add fd01::1/64 dev eth0 nodad"},
		"flushes addresses": {"ip addr flush dev eth0"},
		"changes MAC":       {"ip link set eth0 address 02:00:00:00:00:99"},
		"the bridge's MAC":  {"ip link set eth0 address $BRIDGE"},
		"changes routes":    {"ip route flush table main", "ip route add 10.1.0.3 dev eth0", "ip rule add from all lookup 77"},
		"changes alias":     {"ip link set eth0 alias x"},
		"adds nft rules":    {"nft add table inet fairlead", "nft add chain inet fairlead postrouting { type filter hook output priority 0; policy drop; }"},
		"limits rate":       {"tc qdisc add dev eth0 root tbf rate 1kbit burst 1600 latency 1s", "ip link set eth0 mtu 68"},
		"moves to a netns":  {"ip netns add evil$PID", "ip link set eth0 netns evil$PID"},
	}
	for _, plugin := range []string{"bridge", "ptp"} {
		for _, pinned := range []bool{false, true} {
			for name, list := range attacks {
				t.Run(fmt.Sprint(plugin, " ", pinned, " ", name), func(t *testing.T) {
					t.Parallel()
					if plugin == "bridge" && pinned {
						kerneltest.Needs(t, "nftables for bridges")
					}
					m := newMachine(t, "a", "b")
					conf := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "n", "type": %q, "ipMasq": true, "isGateway": true, "antiSpoof": %v, $IPAM}`, plugin, pinned)
					neighbour := m.must("ADD", plugin, "b", conf)
					_, host := m.hardwareAddresses(neighbour)
					m.must("ADD", plugin, "a", conf)
					m.must("DEL", plugin, "a", conf) // now shared objects exist
					before := m.dump()
					result := m.must("ADD", plugin, "a", conf)
					replacer := strings.NewReplacer("$BRIDGE", host, "$PID", fmt.Sprintf("%x", rand.Uint32()))
					for _, command := range list {
						m.attack(t, replacer.Replace(command))
					}
					_, _ = m.run("CHECK", plugin, "a", withPrevResult(conf, result)) // CHECK may report changes
					m.must("CHECK", plugin, "b", withPrevResult(conf, neighbour))
					kerneltest.In(t, m.Netns["b"], "ping", "-c1", "-W2", "10.1.0.1")
					m.must("DEL", plugin, "a", conf)
					m.must("DEL", plugin, "a", conf)
					if after := m.dump(); after != before {
						t.Errorf("the state has changed:\n%s", kerneltest.Diff(before, after))
					}
					m.must("CHECK", plugin, "b", withPrevResult(conf, neighbour))
					kerneltest.In(t, m.Netns["b"], "ping", "-c1", "-W2", "10.1.0.1")
					m.must("DEL", plugin, "b", conf)
				})
			}
		}
	}
}

// attack runs a command in the container. If the command creates a namespace, the test deletes it at the end.
func (m *machine) attack(t *testing.T, command string) {
	t.Helper()
	argv := strings.Fields(command)
	if strings.HasPrefix(command, "ip netns add ") {
		kerneltest.Run(t, argv...)
		t.Cleanup(func() { kerneltest.Run(t, "ip", "netns", "del", argv[3]) })
		return
	}
	kerneltest.In(t, m.Netns["a"], argv...)
}

// TestARPFlood requests the gateway's address under hundreds of sender addresses. Each one takes an entry in the host's
// neighbour table. The kernel has about a thousand entries for all namespaces of a machine, so the test uses few. With
// antiSpoof no entry is created.
func TestARPFlood(t *testing.T) {
	for _, plugin := range []string{"bridge", "ptp"} {
		for _, pinned := range []bool{false, true} {
			t.Run(fmt.Sprint(plugin, " ", pinned), func(t *testing.T) {
				t.Parallel()
				if plugin == "bridge" && pinned {
					kerneltest.Needs(t, "nftables for bridges")
				}
				m := newMachine(t, "a", "b")
				conf := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "n", "type": %q, "isGateway": true, "antiSpoof": %v,
					"ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "subnet": "10.1.0.0/16"}}`, plugin, pinned)
				m.must("ADD", plugin, "b", conf)
				own, _ := m.hardwareAddresses(m.must("ADD", plugin, "a", conf))
				var flood [][]byte
				for i := range 300 {
					ip := netip.AddrFrom4([4]byte{10, 1, byte(100 + i/250), byte(1 + i%250)})
					flood = append(flood, ethernet([]byte{255, 255, 255, 255, 255, 255}, mac(t, own), 0x0806, arp(1, mac(t, own), ip.String(), "10.1.0.1", 46)))
				}
				m.send("a", flood...)
				entries := func() int { return strings.Count(kerneltest.Run(t, "ip", "-4", "neigh"), "\n") }
				if pinned {
					time.Sleep(kerneltest.Slow(100 * time.Millisecond)) // the packets arrive
					if n := entries(); n > 4 {
						t.Errorf("the host has %d neighbour entries", n)
					}
				} else {
					kerneltest.Eventually(t, func() error {
						if n := entries(); n < 100 {
							return fmt.Errorf("the host has only %d neighbour entries: the attack does not work in this test", n)
						}
						return nil
					})
				}
				kerneltest.In(t, m.Netns["b"], "ping", "-c1", "-W2", "10.1.0.1")
				m.must("DEL", plugin, "a", conf)
				kerneltest.In(t, m.Netns["b"], "ping", "-c1", "-W2", "10.1.0.1")
			})
		}
	}
}
