// Package doctor explains what is wrong with the networks of containers. Facts
// are collected first, by whoever calls; each check is a pure function of them,
// and says what is wrong, where, what follows from it, and what mends it.
package doctor

import (
	"cmp"
	"slices"
	"strings"
)

// Finding is something that is wrong.
type Finding struct {
	Name      string `json:"name"`                // stable: docs/troubleshooting.md lists them
	Network   string `json:"network,omitempty"`   // "": of the host
	Container string `json:"container,omitempty"` // its ID
	IfName    string `json:"ifname,omitempty"`
	Problem   string `json:"problem"` // what is wrong, and where
	Follows   string `json:"follows"` // what a user sees of it
	Mend      string `json:"mend"`    // the command that mends it, or, in words, who has to
}

// check is one look at an attachment, or at the host.
type check struct {
	names string // the findings that it may make
	of    func(*Facts, *Attachment) []Finding
	host  func(*Facts) []Finding
}

// checks is every check, in the order of a packet's path.
func checks() []check {
	return []check{
		{names: "namespace-gone, add-cut-off", of: state},
		{names: "port-blocked, port-isolated, port-on-other-bridge", of: port},
		{names: "bridge-down, interface-missing, address-wrong-prefix, default-route-missing, default-route-replaced, route-replaced, forwarding-off, " +
			"masquerade-missing, host-port-missing, rule-element-of-another, object-changed", of: lost}, // and those of losses
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
		{names: "address-not-held, address-held-by-another", of: held},
		{names: "gateway-silent", of: probed},
		{names: "table-dormant", host: dormant},
		{names: "host-no-default-route", host: hostDefault},
		{names: "conntrack-full", host: conntrack},
		{names: "range-nearly-full", host: ranges},
		{names: "plugin-missing", host: plugins},
		{names: "agent-away, agent-store-away, agent-addresses, agent-not-ready", host: agent},
		{names: "record-of-another-boot", host: otherBoot},
	}
}

// Names are the findings that there can be.
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

// Examine runs every check: on the attachments, then on the host.
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

// merge drops what has been said of the same place: attachments share bridges,
// sysctls and rules of others.
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
