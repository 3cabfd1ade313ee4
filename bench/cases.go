package main

import (
	"slices"
	"strings"
)

// benchCase is a plugin list and how to measure it.
type benchCase struct {
	group, name string
	list        string // a conflist; $SIDE in its name is replaced by the side
	floor       string // its kernel work in the terms of bench/floor; "": only the start of a program
	only        string // measure only this plugin
	chained     bool   // that plugin is not the list's first
	ports       bool   // every attachment has a host port
	ifname      string // "": eth0
	setup       []string
	needs       string   // a link type that some kernels lack, see lacks
	alone       bool     // the reference implementation has no such plugin
	more        []string // sides in addition to Fairlead, the reference and the floor
	verbs       []string // nil: ADD, CHECK, DEL

	jobs, atOnce int  // attachments measured together; 0: one
	node         bool // few but long rounds
	levels       []int
	networks     []network
	before       func(*world) error        // creates what the case requires
	answered     func(*world, *side) error // returns after the new container has answered
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

// These are the groups of cases.
const (
	groupLists    = "lists"
	groupPlugins  = "plugins"
	groupAtOnce   = "at once"
	groupStanding = "present"
	groupHeld     = "in use"
	groupNode     = "node"
	groupPacket   = "first packet"
	groupExamples = "examples"
)

func cases(quick bool) []benchCase {
	return slices.Concat(listCases(), exampleCases(), pluginCases(), atOnceCases(), allocatedCases(), packetCases(), nodeCases(quick), standingCases(quick))
}

// conflist returns a plugin list with $SIDE in its name.
func conflist(name string, plugins ...string) string {
	return `{"cniVersion": "1.0.0", "name": "` + name + `-$SIDE", "plugins": [` + strings.Join(plugins, ", ") + `]}`
}

// ipamOn returns the IPAM configuration for 10.N.0.0/16.
func ipamOn(n string) string {
	return `"ipam": {"type": "host-local", "subnet": "10.` + n + `.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}`
}

// The following functions return plugin configurations.
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

// bridgeUp returns the commands that create the bridge, which exists on every side before the measurement.
func bridgeUp() []string { return []string{"link add bench0 type bridge", "link set bench0 up"} }

// fullChain returns the case by which the project measures a chain.
func fullChain() benchCase {
	return benchCase{
		list:  conflist("chain", bridgePlugin(masqNFT), portmap, bandwidth, firewall, tuning),
		floor: "bridge:bench0 masq port bandwidth sysctl", ports: true, setup: bridgeUp(),
	}
}
