package enforce

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/nft"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// isolatedNet is an isolated network on a node. Its host is the network's namespace.
type isolatedNet struct {
	*host
	name string
}

// isolated returns a network that has no namespace yet. The agent runs already.
func (h *host) isolated(name string) *isolatedNet {
	h.t.Helper()
	name = fmt.Sprintf("t%d%s", os.Getpid(), name)
	there := *h
	there.netns = local.NetnsPath(name)
	h.t.Cleanup(func() { _ = netns.Remove("", there.netns) })
	return &isolatedNet{&there, name}
}

// runNetworks runs the agent's part for isolated networks until the function that it returns is called.
func (h *host) runNetworks() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	e := h.e
	e.startNetworks(func(n *Enforcer) { all.Go(func() { n.runIsolated(ctx) }) })
	stop = sync.OnceFunc(func() {
		e.startNetworks(nil)
		cancel()
		all.Wait()
	})
	h.t.Cleanup(stop)
	return stop
}

func (n *isolatedNet) create() {
	n.t.Helper()
	must(n.t, netns.Create("", n.netns))
}

func (n *isolatedNet) remove() {
	n.t.Helper()
	must(n.t, netns.Remove("", n.netns))
}

// attached notes, like the network's plugin, that a container is attached in the network's namespace.
func (n *isolatedNet) attached(id string) {
	n.t.Helper()
	dir := attach.Open("")
	o := kernel.Owner{Network: "pods", ContainerID: id, IfName: "eth0"}
	place, err := dir.Reserve(o)
	must(n.t, err)
	r := dir.New(o.Network, o.ContainerID, o.IfName, "/proc/self/ns/net")
	r.Host = n.netns
	must(n.t, dir.Create(r, place))
	r.Unlock()
	place.Free()
}

// TestIsolatedAdd checks that ADD in an isolated network returns when the policy is in the network's namespace, and that the
// host's rules for the same addresses do not change.
func TestIsolatedAdd(t *testing.T) {
	h := newHost(t)
	h.start(pod("web", "u1"), pod("db", "u2"), pod("other", "u3"))
	h.runNetworks()
	n := h.isolated("a")
	h.must("ADD", "web", "u1", "10.0.0.1")
	n.create()
	n.attached("u2")
	h.must("ADD", "db", "u2", "10.0.0.1")
	n.is("10.0.0.1", "ingress")
	n.webHas("10.0.0.1", false)
	h.is("10.0.0.1", "ingress")
	h.webHas("10.0.0.1", true)

	// The pod is not known yet: closed in its network only.
	n.attached("u4")
	added := make(chan error, 1)
	go func() { added <- h.call(t.Context(), "ADD", "new", "u4", "10.0.0.2") }()
	n.becomes("10.0.0.2", "closed")
	h.is("10.0.0.2", "")
	h.pod(pod("new", "u4"))
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	n.is("10.0.0.2", "ingress")

	// Changes that concern all, and a DEL.
	h.e.update(func(c *policy.Compiler) { c.DeletePolicy(policy.NetworkPolicyID("shop", "all")) })
	n.becomes("10.0.0.2", "")
	h.becomes("10.0.0.1", "")
	h.e.update(func(c *policy.Compiler) { c.SetNetworkPolicy(isolateAll(t)) })
	n.becomes("10.0.0.2", "ingress")
	h.must("DEL", "new", "u4", "10.0.0.2")
	n.becomes("10.0.0.2", "")
	if out := kerneltest.In(t, n.netns, "nft", "list", "tables"); strings.Count(out, "\n") != 1 {
		t.Errorf("tables in the network's namespace:\n%s", out)
	}
}

// TestIsolatedNamespaceReplaced replaces a network's namespace while the agent works in it. ADD waits for the rules in the
// next one.
func TestIsolatedNamespaceReplaced(t *testing.T) {
	h := newHost(t)
	h.start(pod("web", "u1"), pod("db", "u2"))
	h.runNetworks()
	n := h.isolated("a")
	n.attached("u1")
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := h.call(short, "ADD", "web", "u1", "10.0.0.1"); err == nil {
		t.Error("ADD succeeds without the network's namespace")
	}
	if p := h.e.Problem(); p != "" {
		t.Errorf("a network without a namespace is a problem: %s", p)
	}
	n.create()
	h.must("ADD", "web", "u1", "10.0.0.1")
	n.is("10.0.0.1", "ingress")
	for range 5 {
		n.remove()
		n.create()
		n.attached("u2")
		h.must("ADD", "db", "u2", "10.0.0.2")
		n.is("10.0.0.2", "ingress")
		n.is("10.0.0.1", "ingress")
		h.must("DEL", "db", "u2", "10.0.0.2")
		must(t, attach.Open("").Remove(kernel.Owner{Network: "pods", ContainerID: "u2", IfName: "eth0"}))
	}
	n.remove()
	kerneltest.Until(t, func() bool { return len(h.openNamespaces()) == 0 }) // the agent does not keep it
}

// openNamespaces returns the networks whose namespaces the agent has open.
func (h *host) openNamespaces() (out []string) {
	for _, n := range h.e.allNetworks() {
		n.mu.Lock()
		if n.ns != nil {
			out = append(out, n.network)
		}
		n.mu.Unlock()
	}
	return out
}

// TestIsolatedRestart checks that an agent knows the networks of attachments and pods that exist when it starts, repairs
// their tables, and that the tables end with policy.
func TestIsolatedRestart(t *testing.T) {
	h := newHost(t)
	h.start(pod("web", "u1"))
	stop := h.runNetworks()
	n, status := h.isolated("a"), h.isolated("b")
	n.create()
	status.create()
	n.attached("u1")
	h.must("ADD", "web", "u1", "10.0.0.1")
	stop()
	h.stop()
	n.is("10.0.0.1", "ingress") // while no agent runs
	kerneltest.In(t, n.netns, "nft", "delete", "element", "inet", policy.TableName, "ingress4", "{ 10.0.0.1 }")
	db := pod("db", "u2")
	db.Isolated = map[string][]netip.Addr{status.name: {netip.MustParseAddr("10.0.0.9")}} // as the API has it
	h.start(pod("web", "u1"), db)
	h.e.SetNetworks(map[string]Network{"": {}, n.name: {}, status.name: {}})
	stop = h.runNetworks()
	n.becomes("10.0.0.1", "ingress")
	status.becomes("10.0.0.9", "ingress")
	kerneltest.In(t, n.netns, "nft", "flush", "ruleset")
	kerneltest.Within(t, time.Second, func() error {
		if out := kerneltest.In(t, n.netns, "nft", "list", "ruleset"); !strings.Contains(out, "10.0.0.1 : goto ingress-") {
			return fmt.Errorf("the flushed table is not repaired:\n%s", out)
		}
		return nil
	})
	stop()
	h.stop()
	must(t, kerneltest.Inside(h.netns, func() error {
		existed, err := removeFrom(t.Context(), []string{n.netns, status.netns, n.netns + ".gone"})
		if !existed {
			t.Error("there was no table")
		}
		return err
	}))
	for _, path := range []string{h.netns, n.netns, status.netns} {
		if out := kerneltest.In(t, path, "nft", "list", "tables"); out != "" {
			t.Errorf("%s has tables:\n%s", path, out)
		}
	}
}

// TestInForceWithFirstPolicy checks that policy is not in force from the first policy until the objects are complete on which
// it depends.
func TestInForceWithFirstPolicy(t *testing.T) {
	t.Parallel()
	e := newEnforcer(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)}, kinds())
	e.inForce = true // without policies
	if got := e.gauges()[0]; got != 1 {
		t.Errorf("without policies: %v", got)
	}
	e.update(func(c *policy.Compiler) { c.SetNetworkPolicy(&networkingv1.NetworkPolicy{}) })
	for _, resource := range slices.Sorted(maps.Keys(e.missing)) {
		if got := e.gauges()[0]; got != 0 || e.Problem() == "" {
			t.Errorf("without the %s: %v, problem %q", resource, got, e.Problem())
		}
		e.synced(resource)
	}
	if got := e.gauges()[0]; got != 1 {
		t.Errorf("with everything: %v, problem %q", got, e.Problem())
	}
}

// TestIsolatedProblem checks that what keeps policy from one network is reported, and nothing else.
func TestIsolatedProblem(t *testing.T) {
	e := newEnforcer(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)}, nil)
	e.inForce, e.active = true, true
	n := e.ofNetwork("blue")
	if p := e.Problem(); p != "" || e.gauges()[0] != 1 {
		t.Errorf("no namespace: %s, %v", p, e.gauges())
	}
	n.failed(os.ErrPermission)
	if p := e.Problem(); !strings.HasPrefix(p, "network blue: ") || !strings.Contains(p, "permission denied") || e.gauges()[0] != 0 {
		t.Errorf("no permission: %s, %v", p, e.gauges())
	}
	n.failed(nil)
	n.ns = &netns.Handle{}
	if p := e.Problem(); p != "network blue: the rules are not in the kernel yet" || e.gauges()[0] != 0 {
		t.Errorf("no rules: %s, %v", p, e.gauges())
	}
}

// TestIsolatedNetworksOfCluster checks that a pod's annotation adds only networks of the cluster, and that networks go with
// the cluster's, or later with their last attachment. Their counts stay.
func TestIsolatedNetworksOfCluster(t *testing.T) {
	e := newEnforcer(Options{Node: "n1", Log: slog.New(slog.DiscardHandler), Attachments: podstate.Open(local.Open(t.TempDir(), t.TempDir()))}, nil)
	e.inForce, e.active = true, true
	started := map[string]*Enforcer{}
	e.startNetworks(func(n *Enforcer) { started[n.network] = n })
	is := func(want ...string) {
		t.Helper()
		var have []string
		for _, n := range e.allNetworks() {
			have = append(have, n.network)
		}
		if !slices.Equal(have, want) {
			t.Errorf("networks %q, want %q", have, want)
		}
	}
	db := pod("db", "u2")
	db.Node, db.Isolated = "n1", map[string][]netip.Addr{"blue": nil, "made-up": nil, "../x": nil}
	e.update(func(c *policy.Compiler) { c.SetEndpoint(db) })
	is()
	e.SetNetworks(map[string]Network{"": {}, "blue": {}, "red": {}})
	is("blue")
	e.ofNetwork("red")
	e.update(func(c *policy.Compiler) {
		if c.Network() == "red" {
			c.SetClaim("u2/eth1", &policy.Claim{Namespace: "shop", Name: "db"})
		}
	})
	is("blue", "red")
	counted := []nftable.Counter{{Chain: "ingress-x", Comment: policy.NetworkPolicyID("shop", "db") + " ingress[0]", Handle: 1, Verdict: "accept", Counter: nft.Counter{Packets: 3}}}
	e.metrics.tally.Add(counted)
	started["blue"].metrics.tally.Add(counted)
	before := e.packets()
	e.SetNetworks(map[string]Network{"": {}})
	is("red")
	if started["blue"].done.Err() == nil || started["red"].done.Err() != nil {
		t.Error("the wrong network has ended")
	}
	if after := e.packets(); len(before) == 0 || !maps.Equal(before, after) {
		t.Errorf("packets before %v, after %v", before, after)
	}
	if _, err := e.readAttachment(podstate.Key{ContainerID: "u2", IfName: "eth1"}); err != nil { // has no file: DEL
		t.Fatal(err)
	}
	is()
}
