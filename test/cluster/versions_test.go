package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// versionsVariable enables TestPolicyVersions, which builds earlier commits, and Kubernetes.
const versionsVariable = "FAIRLEAD_POLICY_VERSIONS"

// programsOf builds the programs of a commit, and returns their directory.
func programsOf(t *testing.T, commit string) string {
	t.Helper()
	var path string
	for _, name := range []string{"fairlead", "fairlead-cni"} {
		var err error
		path, err = built.Program("fairlead-"+commit, name, func(temp string) *exec.Cmd {
			cmd := exec.Command("sh", "-ec", `git archive "$1" | tar -x -C "$2"; cd "$2"; go build -o built/ "./cmd/$3"; mv "built/$3" "$3"`, "sh", commit, temp, name)
			cmd.Dir = "../.."
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			return cmd
		})
		must(t, err)
	}
	return filepath.Dir(path)
}

// versions is a cluster of two nodes, one of which has an earlier commit's programs at times.
type versions struct {
	t       *testing.T
	c       *lab.Cluster
	a, b    *lab.Node
	apply   func(policies string)
	attach  func(n *lab.Node, name, app string) netip.Addr
	wait    func(n *lab.Node)               // until the agent is ready
	stored  func(n *lab.Node) []string      // what the store has of a node
	status  func(n *lab.Node) (text string) // of policies, by a node's program
	deleted func(name string)

	addrs map[string]netip.Addr // of containers, by APP-NODE
}

// versionsPolicies let only web to db, and mute only to web. Nobody gets anything from bad.
const versionsPolicies = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: default}
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}, {podSelector: {matchLabels: {app: bad}}}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: mute, namespace: default}
spec: {podSelector: {matchLabels: {app: mute}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: bad}
spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: bad}}}}]}]}
`

// versionsAllow says what the policies decide.
func versionsAllow(from, to string) bool {
	return from != "bad" && (from != "mute" || to == "web") && (to != "db" || from == "web")
}

// newStoreVersions creates a cluster with etcd.
func newStoreVersions(t *testing.T) *versions {
	c := newCluster(t, 2, 1, vxlanNet, "--policy-enabled", "true")
	v := &versions{t: t, c: c, a: c.Nodes[0], b: c.Nodes[1], addrs: map[string]netip.Addr{}}
	v.apply = func(policies string) {
		must(t, os.WriteFile(v.a.Path("/run/policies.yaml"), []byte(policies), 0o644))
		_, err := v.a.Fairlead(t.Context(), "policy", "apply", "-f", "/run/policies.yaml")
		must(t, err)
	}
	v.attach = func(n *lab.Node, name, app string) netip.Addr { return labelled(t, n, name, "pods", "app:"+app) }
	v.deleted = func(string) {}
	v.wait = func(*lab.Node) { must(t, c.Ready(t.Context())) }
	v.status = func(n *lab.Node) string {
		out, _ := n.Cluster(t.Context(), "policy", "status") // it fails while policy is not in force somewhere
		return out
	}
	v.stored = func(n *lab.Node) (lines []string) {
		keys, err := c.Keys(t.Context(), "/fairlead/")
		must(t, err)
		for key, value := range keys {
			if strings.Contains(key, "/"+n.Name) || strings.Contains(value, `"node":"`+n.Name+`"`) {
				lines = append(lines, key+" "+value)
			}
		}
		return lines
	}
	return v
}

// install replaces the programs of a node, and restarts its agent.
func (v *versions) install(n *lab.Node, bin string) {
	v.t.Helper()
	must(v.t, n.Agent.Stop(kerneltest.Slow(10*time.Second)))
	must(v.t, n.Install(bin))
	must(v.t, n.Start())
	v.wait(n)
}

// populate attaches containers to both nodes.
func (v *versions) populate() {
	v.t.Helper()
	for _, n := range v.c.Nodes {
		must(v.t, n.Configure("pods", `{"type": "ptp", "antiSpoof": true, "ipam": {"type": "fairlead-ipam"}}, {"type": "fairlead-policy"}`))
		for _, app := range []string{"web", "db", "mute", "bad"} {
			name := app + "-" + n.Name
			v.addrs[name] = v.attach(n, name, app)
		}
	}
}

// check checks all connections between the containers.
func (v *versions) check() {
	v.t.Helper()
	for _, want := range []bool{true, false} { // a container of the other node may be unknown at first, but never open
		for _, n := range v.c.Nodes {
			for from := range v.addrs {
				for to, addr := range v.addrs {
					fromApp, fromNode, _ := strings.Cut(from, "-")
					toApp, _, _ := strings.Cut(to, "-")
					switch {
					case fromNode != n.Name || from == to || versionsAllow(fromApp, toApp) != want:
					case want:
						wantReach(v.t, n, from, addr)
					default:
						wantNoReach(v.t, n, from, addr)
					}
				}
			}
		}
	}
}

// table returns a node's rules without counters.
func (v *versions) table(n *lab.Node) string {
	v.t.Helper()
	out, err := n.Run(v.t.Context(), "nft", "list", "table", "inet", "fairlead-policy")
	must(v.t, err)
	return kerneltest.Mask(out, kerneltest.Counters)
}

// unchanged checks that a node's rules, and what the store has of it, are the same after do.
func (v *versions) unchanged(n *lab.Node, do func()) {
	v.t.Helper()
	rules, stored := v.table(n), v.stored(n)
	if len(stored) < 2 {
		v.t.Errorf("the store has of node %s: %q", n.Name, stored)
	}
	slices.Sort(stored)
	do()
	if now := v.table(n); now != rules {
		v.t.Errorf("the rules of node %s have changed:\n%s", n.Name, kerneltest.Diff(rules, now))
	}
	now := v.stored(n)
	if slices.Sort(now); !slices.Equal(stored, now) {
		v.t.Errorf("what the store has of node %s has changed:\n%s", n.Name, strings.Join(kerneltest.DiffLines(stored, now), "\n"))
	}
}

// problem keeps an agent from writing its rules, and checks that the other node's program reports this.
func (v *versions) problem(n, other *lab.Node) {
	v.t.Helper()
	ctx, stop := context.WithCancel(v.t.Context())
	cmd := n.Command(ctx, "nft", "-i") // the owner of the table is its socket
	in, err := cmd.StdinPipe()
	must(v.t, err)
	must(v.t, cmd.Start())
	defer func() { stop(); _ = cmd.Wait() }()
	_, err = fmt.Fprintln(in, "delete table inet fairlead-policy; add table inet fairlead-policy { flags owner; }")
	must(v.t, err)
	report := "node " + n.Name + ": "
	kerneltest.Within(v.t, 90*time.Second, func() error {
		if text := v.status(other); !strings.Contains(text, report) {
			return errors.New(text)
		}
		return nil
	})
	stop()
	kerneltest.Within(v.t, 90*time.Second, func() error {
		if text := v.status(other); strings.Contains(text, report) {
			return errors.New(text)
		}
		return nil
	})
}

// stream is a stream of datagrams from a container to another one, one in each millisecond.
type stream struct {
	from, to       string // APP-NODE
	sent, received int
	end            func()
}

// stream starts a stream.
func (v *versions) stream(from, to string) *stream {
	t := v.t
	t.Helper()
	netns := func(name string) string {
		_, node, _ := strings.Cut(name, "-")
		i := slices.IndexFunc(v.c.Nodes, func(n *lab.Node) bool { return n.Name == node })
		return v.c.Nodes[i].Path("/run/netns/" + name)
	}
	var in, out *net.UDPConn
	must(t, kerneltest.Inside(netns(to), func() (err error) {
		in, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(v.addrs[to], 0)))
		return err
	}))
	must(t, kerneltest.Inside(netns(from), func() (err error) {
		out, err = net.DialUDP("udp", nil, in.LocalAddr().(*net.UDPAddr))
		return err
	}))
	must(t, in.SetReadBuffer(8<<20))
	s := &stream{from: from, to: to}
	stop, sending, reading := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sending)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := out.Write([]byte("x")); err == nil {
					s.sent++
				}
			}
		}
	}()
	go func() {
		defer close(reading)
		for _, err := in.Read(make([]byte, 1)); err == nil; _, err = in.Read(make([]byte, 1)) {
			s.received++
		}
	}()
	s.end = sync.OnceFunc(func() {
		close(stop)
		<-sending
		time.Sleep(kerneltest.Slow(200 * time.Millisecond)) // what has been sent is read
		_, _ = in.Close(), out.Close()
		<-reading
	})
	t.Cleanup(s.end)
	return s
}

// replace upgrades and rolls back an agent. Meanwhile datagrams cross its node, one in each millisecond. Those that
// policy allows arrive, and those that it denies do not.
func (v *versions) replace(n *lab.Node, bins ...string) {
	v.t.Helper()
	var list []*stream
	for _, x := range []string{"web-a db-b", "mute-a db-b", "bad-a db-b", "web-b db-b", "mute-b web-a", "mute-b db-a", "bad-b web-b"} {
		from, to, _ := strings.Cut(x, " ")
		list = append(list, v.stream(from, to))
	}
	for _, bin := range bins {
		time.Sleep(time.Second)
		v.install(n, bin)
	}
	time.Sleep(time.Second)
	for _, s := range list {
		s.end()
		from, _, _ := strings.Cut(s.from, "-")
		to, _, _ := strings.Cut(s.to, "-")
		v.t.Logf("%s to %s: %d of %d arrived", s.from, s.to, s.received, s.sent)
		want := 0
		if versionsAllow(from, to) {
			want = s.sent
		}
		if s.received != want || s.sent < 1000 {
			v.t.Errorf("%s to %s: of %d datagrams, %d arrived, want %d", s.from, s.to, s.sent, s.received, want)
		}
	}
}

// TestPolicyVersions runs one node with this version and one with an earlier one, with the same policies, and replaces
// the agent of one node under load.
func TestPolicyVersions(t *testing.T) {
	kerneltest.OptIn(t, versionsVariable)
	for _, tt := range []struct {
		name, commit string
		cluster      func(*testing.T) *versions
	}{
		{"etcd, the first version with policies there", "7e15f19a", newStoreVersions},
		{"etcd, the last version without policy by default", "ae6ad4c3", newStoreVersions},
		{"Kubernetes, the first version with a status", "6c4a1fb0", newKubeVersions},
		{"Kubernetes, the last version without policy by default", "ae6ad4c3", newKubeVersions},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old := programsOf(t, tt.commit)
			v := tt.cluster(t)
			v.install(v.b, old)
			v.apply(versionsPolicies)
			v.populate()
			v.check()
			v.unchanged(v.a, func() { v.install(v.b, old) })
			v.unchanged(v.b, func() { time.Sleep(20 * time.Second) }) // longer than the pause before a status is written again
			v.unchanged(v.b, func() { v.install(v.a, bin) })
			v.problem(v.a, v.b)
			v.problem(v.b, v.a)
			v.check()
			v.replace(v.b, bin, old, bin)
			v.check()
			for _, n := range v.c.Nodes {
				for name := range v.addrs {
					if strings.HasSuffix(name, "-"+n.Name) {
						_, err := n.Fairlead(t.Context(), "del", "pods", name)
						must(t, err)
						v.deleted(name)
					}
				}
				kerneltest.Eventually(t, func() error {
					if left := v.table(n); strings.Contains(left, ": goto") {
						return fmt.Errorf("node %s still has\n%s", n.Name, left)
					}
					return nil
				})
			}
		})
	}
}
