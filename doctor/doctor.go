// Package doctor explains what is wrong with the networks of containers. The caller collects facts first (package
// gather). Each check is a pure function of the facts. It returns what is wrong, where, what it causes, and what fixes
// it.
package doctor

import (
	"cmp"
	"slices"
	"strings"
)

// Finding is one problem.
type Finding struct {
	Name      string `json:"name"`                // stable: docs/troubleshooting.md lists them
	Network   string `json:"network,omitempty"`   // "" for a problem of the host
	Container string `json:"container,omitempty"` // container ID
	IfName    string `json:"ifname,omitempty"`
	Problem   string `json:"problem"` // what is wrong, and where
	Effect    string `json:"effect"`  // what a user notices
	Fix       string `json:"fix"`     // the command that fixes it, or who has to act
}

// check examines an attachment, or the host.
type check struct {
	names string // the findings that it may return
	of    func(*Facts, *Attachment) []Finding
	host  func(*Facts) []Finding
}

// checks returns every check, in the order of a packet's path.
func checks() []check {
	return []check{
		{names: "namespace-gone, add-interrupted, network-namespace-gone", of: state},
		{names: "port-blocked, port-isolated, port-on-other-bridge", of: port},
		{names: "bridge-down, interface-missing, address-wrong-prefix, default-route-missing, default-route-replaced, route-replaced, forwarding-off, " +
			"masquerade-missing, host-port-missing, rule-element-of-another, object-changed", of: lost}, // and the names in losses
		{names: "no-carrier", of: carrier},
		{names: "mac-changed", of: macChanged},
		{names: "mac-pinned-otherwise", of: macPinned},
		{names: "address-duplicate, address-tentative", of: duplicates},
		{names: "gateway-unanswered, gateway-neighbour-wrong, neighbour-wrong", of: neighbours},
		{names: "host-route-wrong, host-route-refused", of: hostRoute},
		{names: "forwarding-off-on-link", of: linkForwarding},
		{names: "forward-dropped, input-dropped, host-port-dropped", of: filtered},
		{names: "host-port-taken", of: taken},
		{names: "mtu-too-large", of: mtu},
		{names: "dns-loopback, dns-unreachable", of: dns},
		{names: "lease-lost, lease-unknown, dhcp-daemon-away", of: lease},
		{names: "address-not-held, address-held-by-another", of: held},
		{names: "gateway-silent", of: probed},
		{names: "table-dormant", host: dormant},
		{names: "tunnel-dropped", host: tunnelDropped},
		{names: "host-no-default-route", host: hostDefault},
		{names: "conntrack-full", host: conntrack},
		{names: "range-nearly-full", host: ranges},
		{names: "plugin-missing", host: plugins},
		{names: "agent-away, agent-store-away, agent-addresses, agent-nodes-unreachable, agent-not-ready", host: agent},
		{names: "state-directory-unusable", host: stateDir},
		{names: "record-damaged", host: damaged},
		{names: "record-of-another-boot", host: otherBoot},
	}
}

// Names returns the names of all findings, sorted.
func Names() (out []string) {
	for _, c := range checks() {
		out = append(out, strings.Split(c.names, ", ")...)
	}
	for _, w := range losses() {
		out = append(out, w.name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Examine runs every check on the attachments, then on the host.
func Examine(f *Facts) (out []Finding) {
	for _, a := range f.Attachments {
		for _, c := range checks() {
			if c.of == nil {
				continue
			}
			for _, x := range c.of(f, a) {
				x.Network, x.Container, x.IfName = a.Network, a.Container, a.IfName
				out = append(out, x)
			}
		}
	}
	for _, c := range checks() {
		if c.host != nil {
			out = append(out, c.host(f)...)
		}
	}
	return merge(harmless(f, out))
}

// merge drops repeated findings: attachments share bridges, sysctls and third-party rules.
func merge(all []Finding) (out []Finding) {
	seen := map[string]bool{}
	for _, x := range all {
		key := x.Name + "\x00" + x.Container + x.Network + x.IfName + "\x00" + x.Problem
		if !seen[key] {
			seen[key] = true
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(host(a), host(b)), cmp.Compare(a.Network, b.Network), cmp.Compare(a.Container, b.Container), cmp.Compare(a.IfName, b.IfName))
	})
	return out
}

func host(x Finding) int {
	if x.Container == "" {
		return 1
	}
	return 0
}
