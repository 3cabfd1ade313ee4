package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Fits says why a network cannot be beside those that there are: networks that
// share a namespace, or that are peers, have no address twice, and a VNI is one's.
func (s *Snapshot) Fits(n *Network) error {
	var errs []error
	for name, m := range s.Networks {
		if name == n.Name {
			continue
		}
		if vni, both := meet(n, m); both {
			errs = append(errs, fmt.Errorf("network %s: vni %d is network %s's", n.Name, vni, name))
		}
		peers := slices.Contains(n.Peers, name) || slices.Contains(m.Peers, n.Name)
		if !peers && (n.Isolated || m.Isolated) {
			continue
		}
		for _, a := range n.Subnets {
			for _, b := range m.Subnets {
				if a.CIDR.Overlaps(b.CIDR) {
					errs = append(errs, fmt.Errorf("network %s: its subnet %s overlaps with %s of network %s, and each has to reach the other", n.Name, a.CIDR, b.CIDR, name))
				}
			}
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
	return errors.Join(append(errs, s.tellable(n))...)
}

// tellable refuses a network two of whose peers have the same addresses, and one that
// would be such a peer: nobody could say which of both is meant.
func (s *Snapshot) tellable(n *Network) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Networks)) {
		hub := s.Networks[name]
		if name == n.Name || !slices.Contains(hub.Peers, n.Name) {
			continue
		}
		for _, p := range hub.Peers {
			if p != n.Name {
				errs = append(errs, bothMeant(hub.Name, n, s.Networks[p]))
			}
		}
	}
	for i, p := range n.Peers {
		for _, q := range n.Peers[:i] {
			errs = append(errs, bothMeant(n.Name, s.Networks[p], s.Networks[q]))
		}
	}
	return errors.Join(errs...)
}

// The VNI and the UDP port that vxlan has unless it is told others: what flannel has,
// and Linux by itself.
const (
	DefaultVNI  = 1
	DefaultPort = 8472
)

// tunnel is by what a host tells the VXLAN tunnels of several networks apart.
type tunnel struct{ vni, port int }

// tunnels are a network's.
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

// meet is a VNI of which two networks cannot both have a tunnel on one host.
func meet(n, m *Network) (vni int, both bool) {
	if !n.lives() || !m.lives() {
		return 0, false
	}
	for _, t := range n.tunnels() {
		if slices.Contains(m.tunnels(), t) {
			return t.vni, true
		}
	}
	return 0, false
}

// lives tells whether a network has tunnels: of those in the hosts' namespace the
// default one.
func (n *Network) lives() bool { return n.Isolated || n.Name == DefaultNetwork }

// Displaced are the isolated networks whose VNI is another network's, with that: the
// default one's, or that of one before it by name. A host can have only one of both.
func (s *Snapshot) Displaced() map[string]string {
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

// bothMeant refuses two networks that a third has as peers, if they overlap.
func bothMeant(hub string, a, b *Network) error {
	if a == nil || b == nil || a.Name == b.Name {
		return nil
	}
	for _, x := range a.Subnets {
		for _, y := range b.Subnets {
			if x.CIDR.Overlaps(y.CIDR) {
				return fmt.Errorf("network %s: its peers %s and %s overlap in %s and %s, so it could not tell them apart", hub, a.Name, b.Name, x.CIDR, y.CIDR)
			}
		}
	}
	return nil
}

// Mutual tells whether two isolated networks name each other as peers.
func (s *Snapshot) Mutual(a, b string) bool {
	x, y := s.Networks[a], s.Networks[b]
	return x != nil && y != nil && x.Isolated && y.Isolated && slices.Contains(x.Peers, b) && slices.Contains(y.Peers, a)
}
