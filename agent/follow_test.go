package agent

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// received is a follower that notes its calls.
type received struct{ calls []string }

func (r *received) Reset([]source.Entry, int64) { r.calls = append(r.calls, "reset") }
func (r *received) Change(source.Batch)         { r.calls = append(r.calls, "change") }
func (r *received) Disconnected(error)          { r.calls = append(r.calls, "disconnected") }
func (r *received) Reconnected()                { r.calls = append(r.calls, "reconnected") }
func (r *received) Restored()                   { r.calls = append(r.calls, "restored") }

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
	u.Disconnected(nil)
	u.Reconnected()
	u.Restored()
	u.Reset([]source.Entry{network(cluster.AssignPodCIDR), {Key: "nodes/a", Document: &cluster.Node{}}, {Key: "networks/y", Deleted: true}}, 1)
	u.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignPodCIDR, cluster.AssignPodCIDR)}})
	if want := []string{"disconnected", "reconnected", "restored", "reset", "change"}; found != 0 || !slices.Equal(got.calls, want) {
		t.Errorf("with podCIDRs only: found %d, passed on %v, want %v", found, got.calls, want)
	}
	u.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignPodCIDR, "")}})
	u.Change(source.Batch{Entries: []source.Entry{network(cluster.AssignCluster)}})
	u.Disconnected(nil)
	if found != 1 || len(got.calls) != 5 {
		t.Errorf("with blocks: found %d times, want 1; passed on %v", found, got.calls)
	}
	got.calls = nil
	u = &untilBlocks{followers: []source.Follower{got}, found: func() { found++ }}
	u.Reset([]source.Entry{network("")}, 1)
	if found != 2 || got.calls != nil {
		t.Errorf("a first list with blocks: found %d times, want 2; passed on %v", found, got.calls)
	}
	got.calls = nil
	u = &untilBlocks{followers: []source.Follower{got}, found: func() { found++ }}
	u.Reset([]source.Entry{{Key: "nodes/a", Problem: os.ErrInvalid}}, 1)
	u.Change(source.Batch{Entries: []source.Entry{{Key: "networks/x", Problem: os.ErrInvalid}}})
	if want := []string{"reset"}; found != 3 || !slices.Equal(got.calls, want) {
		t.Errorf("an invalid network: found %d times, want 3; passed on %v, want %v", found, got.calls, want)
	}
	got.calls = nil
	u = &untilBlocks{followers: []source.Follower{got}}
	u.Disconnected(nil)
	u.end()
	if want := []string{"disconnected", "reconnected"}; !slices.Equal(got.calls, want) {
		t.Errorf("an end while the store is away: passed on %v, want %v", got.calls, want)
	}
}

// TestFollowWhereabouts checks that an agent in a cluster of podCIDRs follows the addresses of whereabouts from the
// first claim on, and from its start if this node has had such addresses.
func TestFollowWhereabouts(t *testing.T) {
	t.Parallel()
	const key = "addresses/other/10.7.0.1"
	dir := t.TempDir()
	s, err := store.File(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Commit(t.Context(), store.Op{Key: key, Value: []byte(`{"owner":"x eth0","node":"b"}`)}); err != nil {
		t.Fatal(err)
	}
	start := func(node string) (*Agent, func()) {
		c := &config.Config{Node: node, Network: &cluster.Network{Name: "default", Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.0.0.0/16"), Assign: cluster.AssignPodCIDR}}}}
		c.Store.Kubernetes.Kubeconfig = "in another store"
		lib := filepath.Join(dir, node)
		a, err := newAgent(Options{Config: c, Store: s, Lib: lib, Run: filepath.Join(lib, "r"), Log: quietLog()}, &recorder{netip.MustParsePrefix("192.0.2.1/24")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.run(ctx) }()
		return a, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	knows := func(a *Agent) (is bool) {
		a.storeCache.read(func(s *cluster.Snapshot) { is = a.storeCache.lists > 0 && s.Addresses[key] != nil })
		return is
	}
	a, stop := start("a")
	kerneltest.Until(t, func() bool { return a.storeCache.revisionOf("nodes/a") != 0 })
	if knows(a) {
		t.Error("without whereabouts, the agent follows addresses")
	}
	span := local.Span{First: netip.MustParseAddr("10.8.0.1"), Last: netip.MustParseAddr("10.8.0.9")}
	args, err := json.Marshal(local.ClaimArgs{Network: "w", Container: "c", IfName: "eth0", Whereabouts: true, Wants: []local.Want{{Ranges: []local.Span{span}}}})
	if err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool {
		_, err := a.manager.Handlers()[local.OpClaim](t.Context(), args)
		return err == nil
	})
	kerneltest.Until(t, func() bool { return knows(a) })
	stop()
	if err := os.MkdirAll(filepath.Join(dir, "b", "fairlead", "addresses", "w"), 0o755); err != nil {
		t.Fatal(err)
	}
	a, stop = start("b")
	defer stop()
	kerneltest.Until(t, func() bool { return knows(a) && a.storeCache.revisionOf("nodes/b") != 0 })
	kerneltest.Until(t, func() bool { // nothing writes to the directory while it is removed
		_, err := a.manager.Dir.Read("default")
		return err == nil
	})
	if lists := a.storeCache.resyncs(); lists != 1 {
		t.Errorf("the agent listed the store %d times: at first it knew only the networks and nodes", lists)
	}
}
