package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
)

// received is a follower that notes its calls.
type received struct{ calls []string }

func (r *received) Reset([]source.Entry, int64) { r.calls = append(r.calls, "reset") }
func (r *received) Change(source.Batch)         { r.calls = append(r.calls, "change") }
func (r *received) Away(error)                  { r.calls = append(r.calls, "away") }
func (r *received) Back()                       { r.calls = append(r.calls, "back") }
func (r *received) Rewound()                    { r.calls = append(r.calls, "rewound") }

// TestUntilBlocks checks that an agent begins to follow blocks when the first network assigns them, and that no part of the
// agent gets that network before the blocks.
func TestUntilBlocks(t *testing.T) {
	t.Parallel()
	network := func(assign ...string) source.Entry {
		d := &cluster.Network{}
		for _, a := range assign {
			d.Subnets = append(d.Subnets, cluster.Subnet{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Assign: a})
		}
		return source.Entry{Key: "networks/x", Document: d}
	}
	found, got := 0, &received{}
	u := &untilBlocks{followers: []source.Follower{got}, found: func() { found++ }}
	u.Away(nil)
	u.Back()
	u.Rewound()
	u.Reset([]source.Entry{network(cluster.AssignPodCIDR), {Key: "nodes/a", Document: &cluster.Node{}}, {Key: "networks/y", Deleted: true}}, 1)
	u.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignPodCIDR, cluster.AssignPodCIDR)}})
	if want := []string{"away", "back", "rewound", "reset", "change"}; found != 0 || !slices.Equal(got.calls, want) {
		t.Errorf("with podCIDRs only: found %d, passed on %v, want %v", found, got.calls, want)
	}
	u.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignPodCIDR, "")}})
	u.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignCluster)}})
	u.Away(nil)
	if found != 1 || len(got.calls) != 5 {
		t.Errorf("with blocks: found %d times, want 1; passed on %v", found, got.calls)
	}
	got.calls = nil
	u = &untilBlocks{followers: []source.Follower{got}, found: func() { found++ }}
	u.Reset([]source.Entry{network("")}, 1)
	if found != 2 || got.calls != nil {
		t.Errorf("a first list with blocks: found %d times, want 2; passed on %v", found, got.calls)
	}
}
