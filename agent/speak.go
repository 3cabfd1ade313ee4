package agent

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
)

// speak has the node's BGP speaker be as the default network asks, or not be, and
// notes what it learned. What fails is a problem of this node's alone.
func (a *Agent) speak(ctx context.Context, self *cluster.Node, h *Host) (problems []backend.Problem) {
	var want *bgp.Config
	a.view.read(func(s *cluster.Snapshot) { want = speaking(s, self) })
	var err error
	h.Learned, err = a.speaker.Look(ctx, want, func() ([]backend.Learned, error) { return a.keeper.kept(h.Underlay.Index) })
	if err != nil {
		problems = append(problems, backend.Problem{Node: self.Name, Err: fmt.Errorf("bgp: %w", err)})
	}
	return problems
}

// speaking is the configuration of a node's speaker; nil if no network asks for one.
func speaking(s *cluster.Snapshot, self *cluster.Node) *bgp.Config {
	n := s.Networks[cluster.DefaultNetwork]
	if n == nil {
		return nil
	}
	for _, b := range n.Backends {
		if b.Type != cluster.BGP {
			continue
		}
		s, _ = sound(s, self)
		var nodes []*cluster.Node
		for _, name := range s.NodeNames() {
			nodes = append(nodes, s.Nodes[name])
		}
		c := bgp.Configure(b, self, nodes, has(s, n, self))
		return &c
	}
	return nil
}

// has is what a node has of a network: its blocks, and single addresses that are there.
func has(s *cluster.Snapshot, n *cluster.Network, self *cluster.Node) []netip.Prefix {
	out := s.BlocksOf(n.Name, self.Name)
	for _, a := range s.Addresses {
		if a.Network == n.Name && a.Node == self.Name {
			out = append(out, netip.PrefixFrom(a.IP, a.IP.BitLen()))
		}
	}
	return out
}

// kept is what an earlier life learned, as the kernel has it.
func (k *kernelKeeper) kept(index int) (out []backend.Learned, _ error) {
	for _, fam := range []byte{kernel.IPv4, kernel.IPv6} {
		routes, err := k.engine.Routes(kernel.Host, fam, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, bgp.Kept(routes, index)...)
	}
	return out, nil
}
