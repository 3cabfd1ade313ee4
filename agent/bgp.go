package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// runBGP starts, updates or stops the BGP speaker as the default network asks, and stores the routes that it learned. A
// failure is a problem of this node only; runBGP then returns when to try again. 0 means never.
func (a *Agent) runBGP(ctx context.Context, self *cluster.Node, h *desired.Host) (problems []backend.Problem, again time.Duration) {
	var want *bgp.Config
	a.storeCache.read(func(s *cluster.Snapshot) { want = bgpConfig(s, self) })
	silent := withoutFamily(want)
	var err error
	h.Learned, err = a.speaker.Reconcile(ctx, want, func() ([]backend.Learned, error) { return a.reconciler.learnedRoutes(h.Underlay.Index) })
	if err != nil {
		problems, again = append(problems, backend.Problem{Node: self.Name, Err: fmt.Errorf("bgp: %w", err)}), lastRetry
	}
	for _, p := range silent {
		problems = append(problems, backend.Problem{Node: "block " + p.String(), Err: errors.New("bgp does not announce it, because this node has no address of that family")})
	}
	return problems, again
}

// sessionPatience is the time without a BGP session after which the agent reports a problem. A session takes some seconds
// to come up, and returns quickly after a restart of the neighbour.
const sessionPatience = 30 * time.Second

// lostSessions returns a problem for each router, and for each node that only BGP connects, without a session for
// sessionPatience. It also returns when to check again; 0 means never.
func (a *Agent) lostSessions(w *desired.State) (problems []backend.Problem, again time.Duration) {
	lost, again := a.speaker.Lost(sessionPatience)
	a.storeCache.read(func(s *cluster.Snapshot) { problems = sessionProblems(lost, s, w.By[cluster.DefaultNetwork]) })
	return problems, again
}

func sessionProblems(lost []bgp.Neighbour, s *cluster.Snapshot, by map[string]string) (out []backend.Problem) {
	nodes := map[netip.Addr]string{}
	for name, typ := range by {
		if n := s.Nodes[name]; n != nil && typ == cluster.BGP {
			for _, a := range n.Addresses {
				nodes[a.Addr()] = name
			}
		}
	}
	for _, n := range lost {
		name, ok := nodes[n.Address]
		if n.Router {
			name, ok = "BGP router "+n.Address.String(), true
		}
		if ok {
			out = append(out, backend.Problem{Node: name, Err: fmt.Errorf("bgp: no session with %s (AS %d) for %s: check that it runs BGP with this AS number, "+
				"has this node as a neighbour, and that TCP port 179 is open between the two", n.Address, n.ASN, sessionPatience)})
		}
	}
	return out
}

// withoutFamily removes the prefixes from a configuration that the node cannot announce, and returns them: it has no address
// of their family.
func withoutFamily(c *bgp.Config) (silent []netip.Prefix) {
	if c == nil {
		return nil
	}
	c.Advertise = slices.DeleteFunc(c.Advertise, func(p netip.Prefix) bool {
		can := slices.ContainsFunc(c.Local, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() })
		if !can {
			silent = append(silent, p)
		}
		return !can
	})
	return silent
}

// bgpConfig returns the configuration of the node's BGP speaker, or nil if the default network does not use BGP.
func bgpConfig(s *cluster.Snapshot, self *cluster.Node) *bgp.Config {
	n := s.Networks[cluster.DefaultNetwork]
	if n == nil {
		return nil
	}
	for _, b := range n.Backends {
		if b.Type != cluster.BGP {
			continue
		}
		s, _ = desired.Valid(s, self)
		var nodes []*cluster.Node
		for _, name := range s.NodeNames() {
			nodes = append(nodes, s.Nodes[name])
		}
		c := bgp.Configure(b, self, nodes, ownPrefixes(s, n, self))
		return &c
	}
	return nil
}

// ownPrefixes returns a node's blocks of a network and the single addresses in use on it.
func ownPrefixes(s *cluster.Snapshot, n *cluster.Network, self *cluster.Node) []netip.Prefix {
	out := s.BlocksOf(n.Name, self.Name)
	for _, a := range s.Addresses {
		if a.Network == n.Name && a.Node == self.Name {
			out = append(out, netip.PrefixFrom(a.IP, a.IP.BitLen()))
		}
	}
	return out
}

// refusedRoutes takes out of a report the errors of routes whose next hop is on none of this node's links, and returns them
// as problems of the next hop. A BGP neighbour chose it, and all other routes work.
func refusedRoutes(rep *reconcile.Report) (out []backend.Problem) {
	rep.Errors = slices.DeleteFunc(rep.Errors, func(err error) bool {
		hop := unusableHop(err)
		if hop.IsValid() {
			out = append(out, backend.Problem{Node: "next hop " + hop.String(), Err: err})
		}
		return hop.IsValid()
	})
	return out
}

// unusableHop returns the next hop of a route that the kernel rejected because of it, or the zero address.
func unusableHop(err error) netip.Addr {
	if !reconcile.IsUnusableHop(err) {
		return netip.Addr{}
	}
	o, _ := errors.AsType[*kernel.ObjectError](err)
	if o == nil {
		return netip.Addr{}
	}
	switch r, is := o.Object.(*kernel.Route); {
	case !is || r.Proto != backend.Protocol:
		return netip.Addr{}
	case len(r.Hops) > 0:
		return r.Hops[0].Via
	default:
		return r.Via
	}
}

// learnedRoutes returns the BGP routes in the kernel that an earlier run of the agent installed.
func (k *kernelReconciler) learnedRoutes(index int) (out []backend.Learned, _ error) {
	for _, fam := range []byte{kernel.IPv4, kernel.IPv6} {
		routes, err := k.engine.Routes(kernel.Host, fam, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, bgp.Kept(routes, index)...)
	}
	return out, nil
}
