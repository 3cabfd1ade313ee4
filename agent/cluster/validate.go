package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Default prefix lengths of a node's block: 64 addresses.
const (
	block4 = 26
	block6 = 122
)

// BlockBits returns the prefix length of a node's block in this subnet.
func (s Subnet) BlockBits() int {
	switch {
	case s.Block != 0:
		return s.Block
	case s.CIDR.Addr().Is6():
		return max(block6, s.CIDR.Bits())
	}
	return max(block4, s.CIDR.Bits())
}

// Backend types.
const (
	HostGW    = "host-gw"
	VXLAN     = "vxlan"
	WireGuard = "wireguard"
	IPIP      = "ipip"
	BGP       = "bgp"
)

func backendTypes() []string { return []string{HostGW, VXLAN, WireGuard, IPIP, BGP} }

// Validate returns all errors of a network. Each names the key, the value and what is allowed.
func (n *Network) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{n.Name, field, fmt.Errorf(format, args...)})
	}
	within := func(path string, problems []problem) {
		for _, p := range problems {
			errs = append(errs, &FieldError{n.Name, path + "." + p.field, p.err})
		}
	}
	if !ValidName(n.Name) {
		bad("", "the name is %q: want letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 64", n.Name)
	}
	if list, has := n.longest(); has > maxListLen {
		bad(list, "has %d entries: want at most %d", has, maxListLen)
		return errors.Join(errs...) // the checks below are quadratic
	}
	if len(n.Subnets) == 0 {
		bad("subnets", `is empty: want at least one, like {"cidr": "10.244.0.0/16"}`)
	}
	for i, s := range n.Subnets {
		within(fmt.Sprintf("subnets[%d]", i), s.problems())
		for j, t := range n.Subnets[:i] {
			if s.CIDR.IsValid() && t.CIDR.IsValid() && s.CIDR.Overlaps(t.CIDR) {
				bad(fmt.Sprintf("subnets[%d].cidr", i), "is %s and overlaps with subnets[%d] (%s): an address belongs to one subnet", s.CIDR, j, t.CIDR)
				break
			}
		}
	}
	for i, s := range n.Subnets {
		if s.Assign == AssignPodCIDR && n.Name != DefaultNetwork {
			bad(fmt.Sprintf("subnets[%d].assign", i), "is %q: podCIDRs belong to the network %s", s.Assign, DefaultNetwork)
		}
	}
	for i, b := range n.Backends {
		within(fmt.Sprintf("backends[%d]", i), b.problems())
		if n.Isolated && b.Type != VXLAN {
			bad(fmt.Sprintf("backends[%d].type", i), "is %q: an isolated network can only have %s", b.Type, VXLAN)
		}
		if n.Isolated && b.Direct {
			bad(fmt.Sprintf("backends[%d].direct", i), "is set: all packets of an isolated network take the tunnel")
		}
		if j := slices.IndexFunc(n.Backends[:i], func(other Backend) bool { return n.contend(b, other) }); j >= 0 {
			bad(fmt.Sprintf("backends[%d]", i), "needs the same link as backends[%d] with other settings: a node has one link of the type %s%s", j, b.Type,
				map[string]string{VXLAN: " for a vni, with one port"}[b.Type])
		}
	}
	if n.VNI < 0 || n.VNI > MaxVNI {
		bad("vni", "is %d: want 1 to %d", n.VNI, MaxVNI)
	}
	if n.MTU != 0 && (n.MTU < 576 || n.MTU > 65535) {
		bad("mtu", "is %d: want 576 to 65535, or nothing", n.MTU)
	} else if n.MTU != 0 && n.MTU < MinMTU6 && n.Has(true) {
		bad("mtu", "is %d, and the network has an IPv6 subnet: want at least %d (RFC 8200), or nothing", n.MTU, MinMTU6)
	}
	if n.Isolated && n.Name == DefaultNetwork {
		bad("isolated", "is set: the default network is in the namespace of the hosts")
	}
	if len(n.Peers) > 0 && !n.Isolated {
		bad("peers", "is set: only an isolated network has peers")
	}
	return errors.Join(errs...)
}

// MinMTU6 is the minimum MTU of a link for IPv6, in bytes. With less, the kernel has no IPv6 on the link.
const MinMTU6 = 1280

// maxListLen is the maximum length of a network's lists.
const maxListLen = 1024

// longest returns the name and length of a network's longest list.
func (n *Network) longest() (list string, most int) {
	longer := func(name string, has int) {
		if has > most {
			list, most = name, has
		}
	}
	longer("subnets", len(n.Subnets))
	longer("backends", len(n.Backends))
	longer("peers", len(n.Peers))
	for i, s := range n.Subnets {
		longer(fmt.Sprintf("subnets[%d].exclude", i), len(s.Exclude))
	}
	for i, b := range n.Backends {
		longer(fmt.Sprintf("backends[%d].bgpPeer", i), len(b.BGPPeer))
	}
	return list, most
}

// MaxVNI is the largest VNI; it has 24 bits (RFC 7348, section 5).
const MaxVNI = 1<<24 - 1

// problem is an error in one field of a subnet or a backend.
type problem struct {
	field string
	err   error
}

func (s Subnet) problems() (list []problem) {
	bad := func(field, format string, args ...any) {
		list = append(list, problem{field, fmt.Errorf(format, args...)})
	}
	if !s.CIDR.IsValid() {
		bad("cidr", `is missing: want one like "10.244.0.0/16"`)
		return list
	}
	if s.CIDR != s.CIDR.Masked() {
		bad("cidr", "is %s: want its first address, %s", s.CIDR, s.CIDR.Masked())
	}
	if p, what := special(s.CIDR); what != "" {
		bad("cidr", "is %s and overlaps %s: the addresses there are %s", s.CIDR, p, what)
	}
	all := s.CIDR.Addr().BitLen()
	if s.CIDR.Bits() > all-2 && s.Assign != AssignPodCIDR { // its network, gateway and broadcast address, and one more
		bad("cidr", "is %s, which has too few addresses: want a prefix length of at most %d", s.CIDR, all-2)
	}
	if s.Block != 0 && (s.Block < s.CIDR.Bits() || s.Block > all-2) {
		bad("block", "is %d: want %d to %d, the prefix length of a node's part of %s", s.Block, s.CIDR.Bits(), all-2, s.CIDR)
	}
	if !slices.Contains([]string{"", AssignBlock, AssignCluster, AssignPodCIDR}, s.Assign) {
		bad("assign", "is %q: want %q, %q or %q", s.Assign, AssignBlock, AssignCluster, AssignPodCIDR)
	}
	if s.Assign == AssignPodCIDR && s.Block != 0 {
		bad("block", "is %d: Kubernetes decides about the size of podCIDRs (--node-cidr-mask-size)", s.Block)
	}
	for i, x := range s.Exclude {
		if _, _, err := ParseRange(x); err != nil {
			bad(fmt.Sprintf("exclude[%d]", i), "is %q: %w", x, err)
		}
	}
	return list
}

func (b Backend) problems() (list []problem) {
	bad := func(field, format string, args ...any) {
		list = append(list, problem{field, fmt.Errorf(format, args...)})
	}
	if !slices.Contains(backendTypes(), b.Type) {
		bad("type", "is %q: want one of %s", b.Type, strings.Join(backendTypes(), ", "))
	}
	if b.When != "" && b.When != "direct" {
		bad("when", `is %q: want "direct" or nothing`, b.When)
	}
	if b.VNI < 0 || b.VNI > MaxVNI {
		bad("vni", "is %d: want 1 to %d", b.VNI, MaxVNI)
	}
	if b.Port < 0 || b.Port > 65535 {
		bad("port", "is %d: want 1 to 65535", b.Port)
	}
	if b.Keepalive < 0 || b.Keepalive > 65535 {
		bad("keepalive", "is %d: want 0 to 65535 seconds", b.Keepalive)
	}
	if b.Rotate < 0 || b.Rotate > 65535 {
		bad("rotate", "is %d: want 0 to 65535 hours", b.Rotate)
	}
	for i, p := range b.BGPPeer {
		a := p.Address
		nowhere := a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "" // it does not say on which link
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || nowhere {
			bad(fmt.Sprintf("bgpPeer[%d].address", i), "is %s: want the address of a router", a)
		}
	}
	return list
}

// contend reports whether two backends would each set up the same link, but differently: a WireGuard link has the peers of
// one backend, and a VXLAN link has one port. An isolated network has one VNI, its own.
func (n *Network) contend(a, b Backend) bool {
	switch {
	case a.Type != b.Type:
		return false
	case a.Type == VXLAN:
		sameVNI := n.Isolated || cmp.Or(a.VNI, DefaultVNI) == cmp.Or(b.VNI, DefaultVNI)
		return sameVNI && cmp.Or(a.Port, DefaultPort) != cmp.Or(b.Port, DefaultPort)
	}
	return a.Type == WireGuard
}

// ParseRange parses an address, a prefix, or a range "FIRST-LAST".
func ParseRange(s string) (first, last netip.Addr, err error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked().Addr(), LastOf(p), nil
	}
	a, b, two := strings.Cut(s, "-")
	if !two {
		b = a
	}
	first, err1 := netip.ParseAddr(a)
	last, err2 := netip.ParseAddr(b)
	if err1 != nil || err2 != nil || first.BitLen() != last.BitLen() || last.Less(first) {
		return first, last, errors.New(`want an address, a prefix, or a range like "10.0.0.1-10.0.0.9"`)
	}
	return first, last, nil
}

// LastOf returns a prefix's last address.
func LastOf(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(raw)*8; i++ {
		raw[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(raw)
	return last
}

// ValidName reports whether a string can name a network.
func ValidName(s string) bool { return len(s) <= 64 && validWord(s) }

// maxNodeName is the maximum length of a node's name. In Kubernetes, the node's Lease is named "node.NAME" and has at
// most 253 characters.
const maxNodeName = 248

// CheckNodeName returns an error if a string cannot name a node.
func CheckNodeName(s string) error {
	if len(s) <= maxNodeName && validWord(s) {
		return nil
	}
	return fmt.Errorf("want letters, digits, '.', '_' and '-', beginning with a letter or digit, at most %d", maxNodeName)
}

// validWord is ValidName without a length limit: names of whereabouts networks are longer.
func validWord(s string) bool {
	for i, c := range s {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("._-", c)) {
			return false
		}
	}
	return s != ""
}
