package agent

import (
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/enforce"
)

// policyReport decides what other nodes learn about network policy on this node.
type policyReport struct {
	now func() string // why policy is not in force, or ""; nil: it is not enabled

	since time.Time // when that began
	why   string    // what is published
}

// problem returns what to publish: nothing for a problem that lasts less than unreadyFor, as that of an agent that
// starts. The text stays the same until the problem ends, because each change is an event for all nodes.
func (r *policyReport) problem() string {
	why := ""
	if r.now != nil {
		why = r.now()
	}
	switch {
	case why == "":
		r.since, r.why = time.Time{}, ""
	case r.since.IsZero():
		r.since = time.Now()
	case r.why == "" && time.Since(r.since) >= unreadyFor:
		r.why = why
	}
	return r.why
}

// policyNetworks returns what network policy depends on of the cluster's networks.
func policyNetworks(s *cluster.Snapshot) map[string]enforce.Network {
	out := map[string]enforce.Network{"": {Subnets: podNetworks(s)}}
	for name, n := range s.Networks {
		if !n.Isolated {
			continue
		}
		out[name] = enforce.Network{Subnets: subnetsOf(n), Peers: s.PeersOf(name)}
	}
	return out
}
