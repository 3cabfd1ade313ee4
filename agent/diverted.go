package agent

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// divertedRoutes returns a problem for each route to another node that the kernel does not use.
func divertedRoutes(w *desired.State, rep *reconcile.Report) (out []backend.Problem) {
	if len(rep.Diverted) == 0 {
		return nil
	}
	nodes := map[netip.Prefix]string{}
	for _, b := range w.Blocks {
		nodes[b.CIDR] = b.Node
	}
	for _, d := range rep.Diverted {
		node, is := nodes[d.Dst]
		if !is { // a single address, or a route from a BGP neighbour
			node = d.Dst.String()
		}
		out = append(out, backend.Problem{Node: node, Err: fmt.Errorf(
			"this host does not use the agent's route to %s, but: %s. Remove that route or rule (ip route, ip rule)", d.Dst, d.By)})
	}
	return out
}
