package cluster

import (
	"errors"
	"fmt"
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
		if n.VNI != 0 && n.Isolated && m.Isolated && m.VNI == n.VNI {
			errs = append(errs, fmt.Errorf("network %s: vni %d is network %s's", n.Name, n.VNI, name))
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
	}
	return errors.Join(errs...)
}

// Mutual tells whether two isolated networks name each other as peers.
func (s *Snapshot) Mutual(a, b string) bool {
	x, y := s.Networks[a], s.Networks[b]
	return x != nil && y != nil && x.Isolated && y.Isolated && slices.Contains(x.Peers, b) && slices.Contains(y.Peers, a)
}
