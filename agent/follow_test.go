package agent

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
)

// TestNeedsBlocks checks that an agent begins to follow blocks when the first network assigns them.
func TestNeedsBlocks(t *testing.T) {
	t.Parallel()
	found := 0
	n := &needsBlocks{found: func() { found++ }}
	network := func(assign ...string) source.Entry {
		d := &cluster.Network{}
		for _, a := range assign {
			d.Subnets = append(d.Subnets, cluster.Subnet{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Assign: a})
		}
		return source.Entry{Key: "networks/x", Document: d}
	}
	n.Reset([]source.Entry{network(cluster.AssignPodCIDR), {Key: "nodes/a", Document: &cluster.Node{}}, {Key: "networks/y", Deleted: true}}, 1)
	n.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignPodCIDR, cluster.AssignPodCIDR)}})
	if found != 0 {
		t.Error("networks of podCIDRs need no blocks")
	}
	n.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignPodCIDR, "")}})
	n.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignCluster)}})
	if found != 1 {
		t.Errorf("a network with blocks was found %d times, want 1", found)
	}
}
