package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/bench/figures"
)

// atOnceCases returns cases with many concurrent operations.
func atOnceCases() (list []benchCase) {
	for _, n := range []int{1, 2, 4, 8, 16} {
		plain := benchCase{name: fmt.Sprintf("%s, %d at once", plainName, n), list: conflist("plain", bridgePlugin("")), floor: "bridge:bench0", setup: bridgeUp()}
		chain := fullChain()
		chain.name = fmt.Sprintf("%s, %d at once", chainName, n)
		chain.more = []string{fused, library}
		for _, c := range []benchCase{plain, chain} {
			c.group, c.jobs, c.atOnce, c.verbs = groupAtOnce, n, n, []string{"ADD", "DEL"}
			list = append(list, c)
		}
	}
	return list
}

// allocatedCases returns cases in which addresses are allocated to other containers.
func allocatedCases() (list []benchCase) {
	for _, n := range []int{0, 1000, 10000, 50000} {
		list = append(list, benchCase{group: groupHeld, name: heldBy(n), only: "host-local",
			list: conflist("held", `{"type": "host-local", `+ipamOn("77")+`}`), before: allocateOthers(n), verbs: []string{"ADD", "DEL"}})
	}
	return list
}

func heldBy(n int) string { return fmt.Sprintf("host-local, %d in use", n) }

// allocateOthers fills every side's directory with addresses of other containers.
func allocateOthers(n int) func(*world) error {
	return func(w *world) error {
		for _, s := range w.sides {
			dir := filepath.Join("/var/lib/cni/networks", "held-"+s.word)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			a := netip.MustParseAddr("10.77.0.1")
			for i := range n {
				a = a.Next()
				if err := os.WriteFile(filepath.Join(dir, a.String()), []byte("other"+strconv.Itoa(i)+"\r\neth0"), 0o644); err != nil {
					return err
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "last_reserved_ip.0"), []byte(a.String()), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

// standingCases returns cases with existing attachments on several networks.
func standingCases(quick bool) []benchCase {
	levels := []int{0, 100, 1000, 5000}
	if quick {
		levels = levels[:2]
	}
	plain := benchCase{name: plainName, list: conflist("plain-0", onBridge(0, "")), floor: "bridge:bench0", networks: networks("plain", "", "")}
	chain := fullChain()
	chain.name, chain.list = chainName, conflist("chain-0", onBridge(0, masqNFT), portmap, bandwidth, firewall, tuning)
	chain.more = []string{fused}
	chain.networks = networks("chain", masqNFT, " masq port bandwidth sysctl", portmap, bandwidth, firewall, tuning)
	list := []benchCase{plain, chain}
	for i := range list {
		list[i].group, list[i].levels, list[i].setup, list[i].verbs = groupStanding, levels, bridgesUp(), []string{"ADD", "DEL"}
	}
	return list
}

// bridges is the number of bridges. The last 1,400 of 5,000 attachments are on ptp.
const (
	bridges    = 4
	bridgeRoom = 900
)

func bridgesUp() (lines []string) {
	for i := range bridges {
		lines = append(lines, bridgeNamed(fmt.Sprintf("bench%d", i))...)
	}
	return lines
}

func onBridge(i int, more string) string {
	return fmt.Sprintf(`{"type": "bridge", "bridge": "bench%d", "isGateway": true, %s%s}`, i, more, ipamOn(strconv.Itoa(80+i)))
}

// networks returns the bridges and one ptp network, each with the chained plugins.
func networks(name, more, words string, chained ...string) (list []network) {
	for i := range bridges {
		list = append(list, network{room: bridgeRoom, floor: fmt.Sprintf("bridge:bench%d", i) + words,
			list: conflist(fmt.Sprintf("%s-%d", name, i), append([]string{onBridge(i, more)}, chained...)...)})
	}
	return append(list, network{room: 1 << 15, floor: "ptp" + words, list: conflist(name+"-ptp", append([]string{ptpPlugin}, chained...)...)})
}

// nodePods is the number of pods on a node.
const nodePods = 250

// nodeCases returns the start of a whole node and its drain.
func nodeCases(quick bool) []benchCase {
	const atOnce = 16
	pods := nodePods
	if quick {
		pods = 50
	}
	plain := benchCase{name: fmt.Sprintf("%d pods: %s", pods, plainName), list: conflist("plain", bridgePlugin("")), floor: "bridge:bench0", setup: bridgeUp()}
	chain := fullChain()
	chain.name = fmt.Sprintf("%d pods: %s", pods, chainName)
	chain.more = []string{fused, library}
	list := []benchCase{plain, chain}
	for i := range list {
		c := &list[i]
		c.group, c.jobs, c.atOnce, c.node, c.verbs = groupNode, pods, atOnce, true, []string{"ADD", "DEL"}
		c.more = append(c.more, figures.Nothing)
	}
	return list
}

// packetCases returns cases that last until a new container has answered its first packet.
func packetCases() []benchCase {
	from := benchCase{name: "from the container to its gateway", list: conflist("plain", bridgePlugin("")), answered: func(w *world, s *side) error {
		return ping(w.netns[s.word+"-0"], netip.MustParseAddr("10.77.0.1"), answerWithin)
	}}
	reused := `{"type": "bridge", "bridge": "bench0", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[
		{"subnet": "10.77.0.0/16", "rangeStart": "10.77.78.34", "rangeEnd": "10.77.78.34"}]], "routes": [{"dst": "0.0.0.0/0"}]}}`
	to := benchCase{name: "from a neighbour to an address that another had before", list: conflist("plain", reused), before: neighbours, answered: func(w *world, s *side) error {
		return ping(w.netns["neighbour-"+s.word], netip.MustParseAddr("10.77.78.34"), answerWithin)
	}}
	list := []benchCase{from, to}
	for i := range list {
		list[i].group, list[i].floor, list[i].setup, list[i].verbs = groupPacket, "bridge:bench0", bridgeUp(), []string{"ADD", "DEL"}
		list[i].setup = append(list[i].setup, "addr add 10.77.0.1/16 dev bench0")
	}
	return list
}

// answerWithin limits the wait for an answer. Without an announcement, a neighbour keeps the address's old MAC address
// for half a minute.
const answerWithin = 3 * time.Second

// neighbours creates containers on each side's bridge before the measurement.
func neighbours(w *world) error {
	for _, s := range w.sides {
		name := "neighbour-" + s.word
		if err := w.namespaces(name); err != nil {
			return err
		}
		outside := "link add peer0 master bench0 type veth peer name eth0 netns " + w.netns[name] + "\nlink set peer0 up"
		if err := inside(s.host, outside, "ip", "-batch", "-"); err != nil {
			return err
		}
		if err := inside(w.netns[name], "addr add 10.77.0.9/16 dev eth0\nlink set eth0 up", "ip", "-batch", "-"); err != nil {
			return err
		}
	}
	return nil
}
