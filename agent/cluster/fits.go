package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Fits returns an error if a network conflicts with the existing ones. Networks that share a namespace, or that are
// peers, must not overlap, and VNIs must be unique.
func (s *Snapshot) Fits(n *Network) error {
	var errs []error
	for name, m := range s.Networks {
		if name == n.Name {
			continue
		}
		if vni, both := sharedVNI(n, m); both {
			errs = append(errs, fmt.Errorf("network %s: vni %d belongs to network %s", n.Name, vni, name))
		}
		peers := slices.Contains(n.Peers, name) || slices.Contains(m.Peers, n.Name)
		if !peers && (n.Isolated || m.Isolated) {
			continue
		}
		for _, o := range overlaps(n, m) {
			errs = append(errs, fmt.Errorf("network %s: its subnet %s overlaps with %s of network %s, and each has to reach the other", n.Name, o.a, o.b, name))
		}
	}
	for _, p := range n.Peers {
		if m := s.Networks[p]; m != nil && !m.Isolated {
			errs = append(errs, fmt.Errorf("network %s: its peer %s is not isolated: only isolated networks have peers", n.Name, p))
		}
		if p == n.Name {
			errs = append(errs, fmt.Errorf("network %s: it is its own peer", n.Name))
		}
	}
	return errors.Join(append(errs, s.checkPeers(n))...)
}

// Overlap returns an error if a network shares the hosts' namespace with a network that overlaps it and takes precedence:
// otherwise, two containers could get one address. An administrator can create such a network with kubectl. The default
// network takes precedence, then one that has blocks or addresses, then the first by name.
func (s *Snapshot) Overlap(n *Network) error {
	if n.Isolated {
		return nil
	}
	first := ""
	for name, m := range s.Networks {
		if name != n.Name && !m.Isolated && (first == "" || name < first) && len(overlaps(n, m)) > 0 && s.precedes(m, n) {
			first = name
		}
	}
	if first == "" {
		return nil
	}
	o := overlaps(n, s.Networks[first])[0]
	return fmt.Errorf("its subnet %s overlaps with %s of network %s, so nodes claim no new addresses of it", o.a, o.b, first)
}

// overlap is a subnet of one network that overlaps a subnet of another one.
type overlap struct{ a, b netip.Prefix }

// overlaps returns the overlaps of two networks.
func overlaps(n, m *Network) (list []overlap) {
	for _, a := range n.Subnets {
		for _, b := range m.Subnets {
			if a.CIDR.Overlaps(b.CIDR) {
				list = append(list, overlap{a.CIDR, b.CIDR})
			}
		}
	}
	return list
}

// precedes reports whether a network takes precedence over another one that it overlaps.
func (s *Snapshot) precedes(m, n *Network) bool {
	if m.Name == DefaultNetwork || n.Name == DefaultNetwork {
		return m.Name == DefaultNetwork
	}
	if a, b := s.isUsed(m.Name), s.isUsed(n.Name); a != b {
		return a
	}
	return m.Name < n.Name
}

// isUsed reports whether nodes have blocks or addresses of a network.
func (s *Snapshot) isUsed(network string) bool {
	for _, b := range s.Blocks {
		if b.Network == network {
			return true
		}
	}
	for _, a := range s.Addresses {
		if a.Network == network {
			return true
		}
	}
	return false
}

// checkPeers returns an error if the network, or a network that has it as a peer, would have two peers with overlapping
// subnets: their addresses would be ambiguous.
func (s *Snapshot) checkPeers(n *Network) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Networks)) {
		hub := s.Networks[name]
		if name == n.Name || !slices.Contains(hub.Peers, n.Name) {
			continue
		}
		for _, p := range hub.Peers {
			if p != n.Name {
				errs = append(errs, checkDistinct(hub.Name, n, s.Networks[p]))
			}
		}
	}
	for i, p := range n.Peers {
		for _, q := range n.Peers[:i] {
			errs = append(errs, checkDistinct(n.Name, s.Networks[p], s.Networks[q]))
		}
	}
	return errors.Join(errs...)
}

// The default VNI and UDP port of vxlan: the VNI is flannel's, the port is Linux's own.
const (
	DefaultVNI  = 1
	DefaultPort = 8472
)

// tunnel identifies a VXLAN tunnel on a host.
type tunnel struct{ vni, port int }

// tunnels returns the VXLAN tunnels of a network.
func (n *Network) tunnels() (out []tunnel) {
	list := n.Backends
	if len(list) == 0 {
		list = []Backend{{Type: VXLAN}}
	}
	for _, b := range list {
		t := tunnel{cmp.Or(b.VNI, DefaultVNI), cmp.Or(b.Port, DefaultPort)}
		if n.Isolated {
			t.vni = n.VNI
		}
		if b.Type == VXLAN && t.vni != 0 {
			out = append(out, t)
		}
	}
	return out
}

// sharedVNI returns a VNI that two networks would both use for a tunnel on one host.
func sharedVNI(n, m *Network) (vni int, both bool) {
	if !n.hasTunnels() || !m.hasTunnels() {
		return 0, false
	}
	for _, t := range n.tunnels() {
		if slices.Contains(m.tunnels(), t) {
			return t.vni, true
		}
	}
	return 0, false
}

// hasTunnels reports whether a network has tunnels. Of the networks in the host's namespace, only the default one does.
func (n *Network) hasTunnels() bool { return n.Isolated || n.Name == DefaultNetwork }

// VNIConflicts returns the isolated networks whose VNI another network uses, each with that network. The default
// network takes precedence, then the first by name, because a host can have only one of them.
func (s *Snapshot) VNIConflicts() map[string]string {
	out, has := map[string]string{}, map[tunnel]string{}
	take := func(n *Network) {
		for _, t := range n.tunnels() {
			if other := has[t]; other != "" && other != n.Name {
				out[n.Name] = other
			} else {
				has[t] = n.Name
			}
		}
	}
	if n := s.Networks[DefaultNetwork]; n != nil {
		take(n)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Networks)) {
		if n := s.Networks[name]; n.Isolated {
			take(n)
		}
	}
	return out
}

// checkDistinct returns an error if two peers of a network overlap.
func checkDistinct(hub string, a, b *Network) error {
	if a == nil || b == nil || a.Name == b.Name {
		return nil
	}
	if list := overlaps(a, b); len(list) > 0 {
		return fmt.Errorf("network %s: its peers %s and %s overlap in %s and %s, so it could not tell them apart", hub, a.Name, b.Name, list[0].a, list[0].b)
	}
	return nil
}

// ArePeers reports whether two isolated networks name each other as peers.
func (s *Snapshot) ArePeers(a, b string) bool {
	x, y := s.Networks[a], s.Networks[b]
	return x != nil && y != nil && x.Isolated && y.Isolated && slices.Contains(x.Peers, b) && slices.Contains(y.Peers, a)
}

// PeersOf returns the peers of an isolated network that name it as their peer, too, sorted.
func (s *Snapshot) PeersOf(name string) (out []string) {
	if n := s.Networks[name]; n != nil {
		for _, p := range slices.Sorted(slices.Values(n.Peers)) {
			if s.ArePeers(name, p) {
				out = append(out, p)
			}
		}
	}
	return out
}
