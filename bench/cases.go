package main

import (
	"slices"
	"strings"
)

// benchCase is a list and what is done with it.
type benchCase struct {
	group, name string
	list        string // a conflist; $SIDE in its name keeps sides apart
	floor       string // its kernel work, in the words of bench/floor; "": none, a program's start is all
	only        string // the plugin whose time alone counts
	chained     bool   // which is not the list's first
	ports       bool   // every attachment has a host port
	ifname      string // "": eth0
	setup       []string
	needs       string   // a link type that not every kernel has, see lacks
	alone       bool     // the reference has no such plugin
	more        []string // sides besides ours, the reference and the floor
	verbs       []string // nil: ADD, CHECK, DEL

	jobs, atOnce int  // attachments that are measured together; 0: one
	node         bool // few long rounds
	levels       []int
	networks     []network
	before       func(*world) error        // makes what must exist
	answered     func(*world, *side) error // returns when the new container has answered
}

func (c benchCase) title() string { return c.group + ": " + c.name }

func (c benchCase) size() int { return max(1, c.jobs) }

func (c benchCase) operations() []string {
	if c.verbs != nil {
		return c.verbs
	}
	return []string{"ADD", "CHECK", "DEL"}
}

func (c benchCase) rounds(n int) int {
	if c.node {
		return min(n, 3)
	}
	return n
}

// The groups.
const (
	groupLists    = "lists"
	groupPlugins  = "plugins"
	groupAtOnce   = "at once"
	groupStanding = "standing"
	groupHeld     = "held"
	groupNode     = "node"
	groupPacket   = "first packet"
	groupExamples = "examples"
)

func cases(quick bool) []benchCase {
	return slices.Concat(listCases(), exampleCases(), pluginCases(), atOnceCases(), heldCases(), packetCases(), nodeCases(quick), standingCases(quick))
}

// conflist makes a list of plugins, $SIDE in its name.
func conflist(name string, plugins ...string) string {
	return `{"cniVersion": "1.0.0", "name": "` + name + `-$SIDE", "plugins": [` + strings.Join(plugins, ", ") + `]}`
}

// ipamOn hands out addresses of 10.N.0.0/16.
func ipamOn(n string) string {
	return `"ipam": {"type": "host-local", "subnet": "10.` + n + `.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}`
}

// The plugins of which lists are made.
func bridgePlugin(more string) string {
	return `{"type": "bridge", "bridge": "bench0", "isGateway": true, ` + more + ipamOn("77") + `}`
}

const (
	masqDefault  = `"ipMasq": true, `
	masqNFT      = masqDefault + `"ipMasqBackend": "nftables", `
	masqIPTables = masqDefault + `"ipMasqBackend": "iptables", `
	ptpPlugin    = `{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.76.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}}`
	portmap      = `{"type": "portmap", "capabilities": {"portMappings": true}}`
	bandwidth    = `{"type": "bandwidth", "ingressRate": 1000000000, "ingressBurst": 10000000, "egressRate": 1000000000, "egressBurst": 10000000}`
	firewall     = `{"type": "firewall"}`
	tuning       = `{"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}`
)

// bridgeUp is the bridge, which is there: what every side starts from.
func bridgeUp() []string { return []string{"link add bench0 type bridge", "link set bench0 up"} }

// fullChain is the project's measure of a chain.
func fullChain() benchCase {
	return benchCase{
		list:  conflist("chain", bridgePlugin(masqNFT), portmap, bandwidth, firewall, tuning),
		floor: "bridge:bench0 masq port bandwidth sysctl", ports: true, setup: bridgeUp(),
	}
}
