package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// TestFailureOfOneNetwork checks that an isolated network's failure does not block attachments to others, and that a
// failure of the host blocks those with NAT, because the host's rules isolate them.
func TestFailureOfOneNetwork(t *testing.T) {
	t.Parallel()
	s := newStatus("a")
	look := func(want string, errs ...error) {
		t.Helper()
		w := &desired.State{Namespaces: []desired.Namespace{{Network: "blue"}, {Network: "green", NAT: true}, {Network: "red"}}}
		s.recordReconcile(w, &reconcile.Report{Errors: errs}, time.Now())
		here := ""
		for _, name := range slices.Sorted(maps.Keys(maps.Clone(s.namespaces))) {
			if s.hasNetwork(name) {
				here += name + " "
			}
		}
		host := slices.ContainsFunc(errs, func(err error) bool { return !strings.Contains(err.Error(), "red") })
		if here != want || (s.reconcileErr != nil) != host {
			t.Errorf("with %v there are %q, want %q; %v", errs, here, want, s.reconcileErr)
		}
		if named := strings.Contains(fmt.Sprint(s.state().Failures), "network red: file exists"); named != (len(errs) > 0) {
			t.Errorf("with %v the state has %q", errs, s.state().Failures)
		}
	}
	red := fmt.Errorf("reconcile: %w", &networkError{"red", errors.New("file exists")})
	look("blue ", red, errors.New("write table inet fairlead-agent: no memory"))
	look("blue green ", red)
	look("blue green ", red, errors.New("write table")) // it was set up before
	look("blue green red ")
	look("blue green red ", red)
}

// TestStatusOfManyErrors checks that the state fits into one line of the agent's socket if an object for each node
// fails, as without the link of a tunnel.
func TestStatusOfManyErrors(t *testing.T) {
	t.Parallel()
	s := newStatus("a")
	rep := &reconcile.Report{}
	for i := range 3 * 5000 {
		rep.Errors = append(rep.Errors, fmt.Errorf("ip route add 10.%d.%d.0/26 via 10.244.0.0 dev fl-vxlan onlink proto 103: no such device", i/256, i%256))
	}
	s.recordReconcile(&desired.State{}, rep, time.Now())
	raw, err := json.Marshal(s.state().truncated())
	if err != nil || len(raw) > local.MaxLine/4 {
		t.Errorf("the state has %d bytes (%v), and a line %d", len(raw), err, local.MaxLine)
	}
	if why := s.NotReady().Error(); !strings.HasSuffix(strings.Split(why, "\nthis node")[0], "\nand 14900 more errors") {
		t.Errorf("got %.200s", why[max(0, len(why)-200):])
	}
}

// TestReadyWithUnreachablePeers checks that only what is wrong with this node makes it not ready. A peer without an
// address, or one whose agent has not published its key yet, would otherwise keep pods from all nodes.
func TestReadyWithUnreachablePeers(t *testing.T) {
	t.Parallel()
	addresses := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}
	for _, c := range []struct {
		backend   string
		self      cluster.Node
		peer      cluster.Node
		why       string
		unreached int
	}{
		{"vxlan", cluster.Node{Addresses: addresses}, cluster.Node{}, "", 2},
		{"vxlan", cluster.Node{Addresses: addresses}, cluster.Node{Addresses: addresses}, "", 2},
		{"vxlan", cluster.Node{Addresses: addresses}, cluster.Node{Addresses: []netip.Prefix{netip.MustParsePrefix("fd00::2/64")}}, "", 2},
		{"wireguard", cluster.Node{Addresses: addresses, WireGuard: "key"}, cluster.Node{Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}}, "", 2},
		{"host-gw", cluster.Node{Addresses: addresses}, cluster.Node{Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.2/24")}}, "", 2},
		{"wireguard", cluster.Node{Addresses: addresses}, cluster.Node{Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}}, "wireguard: this node has no WireGuard key yet", 2},
		{"vxlan", cluster.Node{}, cluster.Node{Addresses: addresses}, "vxlan: this node has no address", 2},
	} {
		self, b, d := c.self, c.peer, c.peer
		self.Name, b.Name, d.Name = "a", "b", "d"
		r := backend.Compile(backend.Input{Network: &cluster.Network{Backends: []cluster.Backend{{Type: c.backend}}}, Self: &self, Peers: []backend.Peer{{Node: &b}, {Node: &d}}})
		s := newStatus("a")
		s.published(nil)
		s.recordReconcile(&desired.State{Problems: r.Problems}, &reconcile.Report{}, time.Now())
		if got := errText(s.NotReady()); got != c.why {
			t.Errorf("%s, peer %v: not ready because of %q, want %q", c.backend, b.Addresses, got, c.why)
		}
		if got := s.state(); len(got.Unreachable) != c.unreached || got.Ready != (c.why == "") {
			t.Errorf("%s, peer %v: %+v", c.backend, b.Addresses, got)
		}
	}
}

// TestNotReadyWithoutBlocks checks that a node without addresses is not ready, until it has some.
func TestNotReadyWithoutBlocks(t *testing.T) {
	t.Parallel()
	s := newStatus("a")
	for _, why := range []error{errors.New("no addresses"), nil, errors.New("no addresses")} {
		s.recordReconcile(&desired.State{NoBlocks: why}, &reconcile.Report{}, time.Now())
		if err := s.NotReady(); strings.Contains(err.Error(), "no addresses") != (why != nil) {
			t.Errorf("without blocks: %v: %v", why, err)
		}
	}
}

// TestDamagedKey checks that an agent with a damaged WireGuard key continues: the node keeps the key that it has
// published, and the status says what to do.
func TestDamagedKey(t *testing.T) {
	t.Parallel()
	a, n, dir := newRotatingAgent(t)
	const published, previous = "cHVibGlzaGVk", "cHJldmlvdXM="
	self := &cluster.Node{Name: "a", ID: a.id, WireGuard: published, Previous: previous}
	a.storeCache.Reset([]source.Entry{{Key: n.Key(), Revision: 1, Document: n}, {Key: self.Key(), Revision: 1, Document: self}}, 1)
	file := filepath.Join(dir, "fairlead", "wireguard.key")
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, again, err := a.describeSelf()
	if err != nil {
		t.Fatal(err)
	}
	if got.WireGuard != published || got.Previous != previous || again == 0 {
		t.Errorf("the node's keys are %q and %q, checked again after %v", got.WireGuard, got.Previous, again)
	}
	if failures := a.State().Failures; len(failures) != 1 || !strings.Contains(failures[0], "wireguard.key does not contain a WireGuard key") || !strings.Contains(failures[0], "remove it") {
		t.Errorf("the status has %q", failures)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, _, _, err = a.describeSelf(); err != nil || got.WireGuard == published || len(a.State().Failures) != 0 {
		t.Errorf("without the file, the key is %q, %v, and the status has %q", got.WireGuard, err, a.State().Failures)
	}
}
