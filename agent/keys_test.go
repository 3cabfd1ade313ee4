package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/source"
)

// newRotatingAgent returns an agent that does not run, a network that rotates WireGuard keys, and the agent's directory.
func newRotatingAgent(t *testing.T) (a *Agent, n *cluster.Network, dir string) {
	t.Helper()
	dir = t.TempDir()
	c := &config.Config{Node: "a", Store: config.Store{File: filepath.Join(dir, "store")}}
	s, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	a, err = newAgent(Options{Config: c, Store: s, Lib: dir, Run: filepath.Join(dir, "r"), Log: quietLog()}, &recorder{netip.MustParsePrefix("192.0.2.1/24")})
	if err != nil {
		t.Fatal(err)
	}
	n = &cluster.Network{Name: "default", Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.0.0.0/8")}}, Backends: []cluster.Backend{{Type: cluster.WireGuard, Rotate: 1}}}
	return a, n, dir
}

// TestKeyWaitsForStore checks that the agent uses the next WireGuard key only after the store has had it for a while. Its
// peers would otherwise reject the node.
func TestKeyWaitsForStore(t *testing.T) {
	t.Parallel()
	a, n, dir := newRotatingAgent(t)
	file := filepath.Join(dir, "fairlead", "wireguard.key")
	// describe makes a file two hours old. The store has the node's document from before.
	describe := func(old string, stored *cluster.Node) *cluster.Node {
		t.Helper()
		list := []source.Entry{{Key: n.Key(), Revision: 1, Document: n}}
		if stored != nil {
			list = append(list, source.Entry{Key: stored.Key(), Revision: 1, Document: stored})
		}
		a.storeCache.Reset(list, 1)
		if before := time.Now().Add(-2 * time.Hour); old != "" {
			if err := os.Chtimes(old, before, before); err != nil {
				t.Fatal(err)
			}
		}
		self, _, _, err := a.describeSelf()
		if err != nil {
			t.Fatal(err)
		}
		return self
	}
	first := describe("", nil)
	next := describe(file, first)
	if next.Previous != first.WireGuard || next.WireGuard == first.WireGuard {
		t.Fatalf("published %q and %q, the first was %q", next.WireGuard, next.Previous, first.WireGuard)
	}
	if away := describe(file+".next", first); away.Previous != first.WireGuard {
		t.Error("the device has a key that the store does not have")
	}
	if st, err := os.Stat(file + ".next"); err != nil || time.Since(st.ModTime()) > backend.Grace {
		t.Errorf("the wait did not begin again: %v", err)
	}
	if last := describe(file+".next", next); last.WireGuard != next.WireGuard || last.Previous != "" {
		t.Errorf("when the store has the key: %q and %q, want %q alone", last.WireGuard, last.Previous, next.WireGuard)
	}
}
