package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// kubeWritesVariable enables the tests of agents whose writes to the Kubernetes API are disturbed. Its value is the number
// of writes after which an agent is killed, or "all".
const kubeWritesVariable = "FAIRLEAD_KUBERNETES_WRITES"

const (
	kubeNamespace = "fairlead-system"
	kubeGrace     = 4 * time.Second
	kubeResources = "/apis/fairlead.io/v1alpha1/"
	kubeLeases    = "/apis/coordination.k8s.io/v1/namespaces/" + kubeNamespace + "/leases"

	kubeNetwork = `{"subnets": [{"cidr": "10.244.0.0/16", "block": 29}, {"name": "single", "cidr": "10.245.0.0/27", "assign": "cluster"},
		{"name": "single", "cidr": "fd00:245::/123", "assign": "cluster"}]}`
)

// kubePaths returns the paths of everything that agents read and write, and of the Nodes.
func kubePaths() []string {
	return []string{kubeResources + "networks", kubeResources + "ipblocks", kubeResources + "ipaddresses", kubeResources + "fixedaddresses", kubeLeases, "/api/v1/nodes"}
}

// kubeServer starts an API server with Fairlead's types.
func kubeServer(t *testing.T) *kubetest.Server {
	t.Helper()
	server := kubetest.Start(t)
	server.Apply("../../contrib/kubernetes/chart/templates/crds.yaml")
	must(t, server.Create("/api/v1/namespaces", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+kubeNamespace+`"}}`))
	return server
}

// kubeWorld is a cluster whose store is the Kubernetes API, and what its containers have.
type kubeWorld struct {
	t       *testing.T
	server  *kubetest.Server
	c       *lab.Cluster
	nodes   map[string]*lab.Node
	proxies map[string]*apiProxy // of the agents
	admin   *apiProxy            // of commands on node a

	mu       sync.Mutex
	holders  map[netip.Addr]string // containers by their addresses
	attempts int
}

// newKubeWorld creates hosts whose agents do not run yet, and their Nodes.
func newKubeWorld(t *testing.T, server *kubetest.Server, nodes ...string) *kubeWorld {
	t.Helper()
	dir := t.TempDir()
	c, err := lab.NewCluster(t.Context(), lab.Options{Network: kubeNetwork, Bin: bin, Dir: dir})
	must(t, err)
	w := &kubeWorld{t: t, server: server, c: c, nodes: map[string]*lab.Node{}, proxies: map[string]*apiProxy{}, holders: map[netip.Addr]string{}}
	t.Cleanup(func() {
		for _, n := range c.Nodes {
			n.Agent.Kill()
		}
		c.Close()
		checkLogs(t, dir)
		w.clear()
	})
	for _, name := range nodes {
		n, err := c.Join(t.Context(), name)
		must(t, err)
		w.proxies[name] = newProxy(t, server, n.Host)
		n.Flags = []string{"--store-kubernetes-kubeconfig", w.proxies[name].Kubeconfig, "--store-kubernetes-namespace", kubeNamespace, "--grace", kubeGrace.String()}
		must(t, n.Configure("single", `{"type": "ptp", "ipam": {"type": "fairlead-ipam", "pool": "single"}}`))
		must(t, n.Configure("fixed", `{"type": "ptp", "ipam": {"type": "fairlead-ipam", "pool": "single", "fixed": true}}`))
		must(t, n.Configure("blue", `{"type": "fairlead-net", "network": "blue"}`))
		w.nodes[name] = n
		if name == nodes[0] {
			w.admin = newProxy(t, server, n.Host)
		}
		server.Node(name, []string{n.V4.String(), n.V6.String()})
	}
	return w
}

// clear deletes everything in the API that agents wrote, and the Nodes.
func (w *kubeWorld) clear() {
	client := w.server.Client()
	for _, path := range kubePaths() {
		if err := client.Delete().AbsPath(path).Do(context.Background()).Error(); err != nil {
			w.t.Errorf("delete all %s: %v", path, err)
		}
	}
}

// start starts the agent of a node, which is not running.
func (w *kubeWorld) start(name string) {
	w.t.Helper()
	n := w.nodes[name]
	must(w.t, n.Start())
	if !slices.Contains(w.c.Nodes, n) {
		w.c.Nodes = append(w.c.Nodes, n)
	}
}

func (w *kubeWorld) waitReady(name string) {
	w.t.Helper()
	kerneltest.Within(w.t, time.Minute, func() error {
		out, err := w.nodes[name].Fairlead(w.t.Context(), "agent", "status")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// command runs a command that reads or writes the store.
func (w *kubeWorld) command(args ...string) (string, error) {
	return w.nodes["a"].Fairlead(w.t.Context(), append(args, "--store-kubernetes-kubeconfig", w.admin.Kubeconfig, "--store-kubernetes-namespace", kubeNamespace)...)
}

// container is an attached container.
type container struct {
	node, name, network string
	ips                 []netip.Addr
}

// add attaches a new container. After a failure it deletes the container and tries another one, as a kubelet does.
func (w *kubeWorld) add(node, network, pod string) (*container, error) {
	env := []string{}
	if pod != "" {
		env = append(env, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME="+pod)
	}
	for end := time.Now().Add(kerneltest.Slow(time.Minute)); ; time.Sleep(100 * time.Millisecond) {
		w.mu.Lock()
		w.attempts++
		c := &container{node: node, name: fmt.Sprintf("c%d", w.attempts), network: network}
		w.mu.Unlock()
		n := w.nodes[node]
		if err := n.Container(context.Background(), c.name); err != nil {
			return nil, err
		}
		out, err := n.FairleadWith(context.Background(), env, "add", network, c.name, "--ifname", "eth0")
		var result struct {
			IPs []struct{ Address netip.Prefix }
		}
		if err == nil {
			err = json.NewDecoder(bytes.NewReader([]byte(out))).Decode(&result)
		}
		for _, ip := range result.IPs {
			c.ips = append(c.ips, ip.Address.Addr())
		}
		if err == nil {
			return c, w.hold(c)
		}
		if e := w.del(c); e != nil || time.Now().After(end) {
			return nil, errors.Join(err, e)
		}
	}
}

// hold records a container's addresses, which no other container may have.
func (w *kubeWorld) hold(c *container) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ip := range c.ips {
		if by := w.holders[ip]; by != "" && c.network != "blue" {
			err = errors.Join(err, fmt.Errorf("%s was given to container %s of %s, and container %s has it", ip, c.name, c.node, by))
		}
		if c.network != "blue" {
			w.holders[ip] = c.name
		}
	}
	return err
}

// del deletes a container. A DEL succeeds without an agent.
func (w *kubeWorld) del(c *container) error {
	w.mu.Lock()
	for _, ip := range c.ips {
		delete(w.holders, ip)
	}
	w.mu.Unlock()
	_, err := w.nodes[c.node].Fairlead(context.Background(), "del", c.network, c.name, "--ifname", "eth0")
	return err
}

func (w *kubeWorld) mustAdd(node, network, pod string) *container {
	w.t.Helper()
	c, err := w.add(node, network, pod)
	must(w.t, err)
	return c
}

// kubeDocument has the fields of all kinds of objects that the tests compare.
type kubeDocument struct {
	Metadata struct{ Name string }
	Spec     struct {
		Network, Node, Owner, Pod, CIDR string
	}
	Status struct {
		Conditions []struct{ Type, Status string }
	}
}

// list returns the objects at a path of the API.
func (w *kubeWorld) list(path string) ([]kubeDocument, error) {
	var list struct{ Items []kubeDocument }
	raw, err := w.server.Client().Get().AbsPath(path).Do(context.Background()).Raw()
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	return list.Items, err
}

// documents returns what the API has, without what differs between runs: which blocks and addresses they are.
func (w *kubeWorld) documents() (lines []string, err error) {
	for _, path := range kubePaths() {
		list, e := w.list(path)
		err = errors.Join(err, e)
		for _, d := range list {
			line := path[strings.LastIndex(path, "/")+1:] + " " + d.Spec.Network + d.Spec.Owner + d.Spec.Pod + " node=" + d.Spec.Node
			switch {
			case strings.HasSuffix(path, "networks"), strings.HasSuffix(path, "nodes"):
				line += " " + d.Metadata.Name
				for _, c := range d.Status.Conditions {
					line += " " + c.Type + "=" + c.Status
				}
			case strings.HasPrefix(d.Metadata.Name, "vni."):
				line += " vni"
			case path == kubeLeases:
				line += " " + d.Metadata.Name
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines, err
}

// waitForDocuments waits until the API has certain documents, or until they stop changing if want is nil.
func (w *kubeWorld) waitForDocuments(want []string) (have []string) {
	w.t.Helper()
	kerneltest.Within(w.t, time.Minute, func() error {
		if want != nil {
			now, err := w.documents()
			if d := kerneltest.DiffLines(want, now); err == nil && len(d) > 0 {
				show, _ := w.command("ipam", "show")
				files, _ := w.nodes["a"].Run(w.t.Context(), "sh", "-c", "grep -r . /var/lib/cni/fairlead/addresses /var/lib/cni/fairlead/*.json")
				err = errors.New("the API differs from a run without a kill:\n" + strings.Join(d, "\n") + "\n" + show + files)
			}
			have = now
			return err
		}
		before, err := w.documents()
		time.Sleep(2 * kubeGrace)
		now, e := w.documents()
		if d := kerneltest.DiffLines(before, now); len(d) > 0 {
			e = errors.Join(e, errors.New("the API still changes:\n"+strings.Join(d, "\n")))
		}
		have = now
		return errors.Join(err, e)
	})
	return have
}

// removedNode creates what a node had that no longer exists.
func (w *kubeWorld) removedNode() {
	w.t.Helper()
	must(w.t, w.server.Create(kubeResources+"ipblocks", `{"apiVersion": "fairlead.io/v1alpha1", "kind": "IPBlock", "metadata": {"name": "default.10.244.9.0-29"},
		"spec": {"network": "default", "cidr": "10.244.9.0/29", "subnet": "10.244.0.0/16", "node": "gone"}}`))
	must(w.t, w.server.Create(kubeResources+"ipaddresses", `{"apiVersion": "fairlead.io/v1alpha1", "kind": "IPAddress", "metadata": {"name": "default.10.245.0.30"},
		"spec": {"network": "default", "ip": "10.245.0.30", "owner": "default/old-0", "fixed": true, "node": "gone", "container": "x", "ifName": "eth0"}}`))
	must(w.t, w.server.Create(kubeResources+"ipaddresses", `{"apiVersion": "fairlead.io/v1alpha1", "kind": "IPAddress", "metadata": {"name": "default.10.245.0.29"},
		"spec": {"network": "default", "ip": "10.245.0.29", "owner": "default/old-1", "node": "gone", "container": "y", "ifName": "eth0"}}`))
}

// play runs everything that makes an agent write: its start, blocks, single and fixed addresses, a VNI, the release of
// all that, what a removed node had, and its end. Node b takes addresses of the same pool meanwhile.
func (w *kubeWorld) play(want []string) []string {
	w.t.Helper()
	w.start("a")
	w.waitReady("a")
	_, err := w.command("network", "create", "blue", "--isolated", "--subnet", "10.9.0.0/24", "--block-size", "28")
	must(w.t, err)
	w.removedNode()
	w.start("b")
	w.waitReady("b")
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			var c *container
			if c, err = w.add("b", "single", ""); err == nil {
				err = w.del(c)
			}
		}
		done <- err
	}()
	var all []*container
	for _, network := range []string{"pods", "pods", "pods", "pods", "pods", "pods", "single", "single", "blue"} {
		all = append(all, w.mustAdd("a", network, ""))
	}
	first := w.mustAdd("a", "fixed", "db-0")
	must(w.t, w.del(first))
	second := w.mustAdd("a", "fixed", "db-0")
	if !slices.Equal(first.ips, second.ips) {
		w.t.Errorf("pod db-0 had %v, and then %v", first.ips, second.ips)
	}
	must(w.t, w.del(second))
	third := w.mustAdd("b", "fixed", "db-0")
	if !slices.Equal(first.ips, third.ips) {
		w.t.Errorf("pod db-0 had %v, and %v on another node", first.ips, third.ips)
	}
	for _, c := range append(all, third) {
		must(w.t, w.del(c))
	}
	stop()
	must(w.t, <-done)
	w.releaseBlocks()
	have := w.waitForDocuments(want)
	w.waitReady("a")
	if out, err := w.command("ipam", "check"); err != nil {
		w.t.Errorf("fairlead ipam check: %v\n%s", err, out)
	}
	if err := w.nodes["a"].Agent.Stop(10 * time.Second); err != nil && want == nil {
		w.t.Error(err)
	}
	return have
}

// releaseBlocks releases all blocks of node a but one, with the command of an administrator.
func (w *kubeWorld) releaseBlocks() {
	w.t.Helper()
	kerneltest.Within(w.t, time.Minute, func() error {
		blocks, err := w.list(kubeResources + "ipblocks")
		if err != nil {
			return err
		}
		kept := false
		for _, b := range blocks {
			if b.Spec.Node != "a" {
				continue
			}
			if b.Spec.Network == "default" && !kept {
				kept = true
				continue
			}
			if _, err := w.command("ipam", "release", b.Spec.CIDR, "--network", b.Spec.Network); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestKilledAtEachWrite kills an agent at each of its writes to the Kubernetes API in turn, once before and once after the
// API executed it, and starts it again. Afterwards the API has what it has after a run without a kill, and no address was
// given twice.
func TestKilledAtEachWrite(t *testing.T) {
	count := kerneltest.OptIn(t, kubeWritesVariable)
	server := kubeServer(t)
	var writes, want []string
	t.Run("no kill", func(t *testing.T) {
		w := newKubeWorld(t, server, "a", "b")
		want = w.play(nil)
		writes = w.proxies["a"].writes
		t.Logf("%d writes: %s\nThe API has\n%s", len(writes), strings.Join(writes, ", "), strings.Join(want, "\n"))
	})
	if t.Failed() {
		return
	}
	limit := len(writes)
	if count != "all" {
		_, err := fmt.Sscan(count, &limit)
		must(t, err)
	}
	at := map[string]int{} // kills by write
	for i := range min(limit, len(writes)) {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %v", i+1, map[bool]string{false: "before", true: "after"}[after]), func(t *testing.T) {
				w := newKubeWorld(t, server, "a", "b")
				killed := make(chan struct{})
				ended := w.restartAfterKill(killed)
				w.proxies["a"].aim(i+1, after, sync.OnceFunc(func() {
					w.nodes["a"].Agent.Kill()
					close(killed)
				}))
				w.play(want)
				select {
				case <-killed:
					must(t, <-ended)
					at[w.proxies["a"].writes[i]]++
				default:
					t.Logf("the agent made %d writes only", len(w.proxies["a"].writes))
				}
			})
		}
	}
	total := 0
	for what, n := range at {
		t.Logf("killed %d times at %s", n, what)
		total += n
	}
	if total < min(limit, len(writes)) {
		t.Errorf("%d kills", total)
	}
}

// restartAfterKill starts the agent of node a again after it was killed. The result is the error of the start.
func (w *kubeWorld) restartAfterKill(killed <-chan struct{}) <-chan error {
	ended := make(chan error, 1)
	go func() {
		<-killed
		ended <- w.nodes["a"].Start()
	}()
	return ended
}

// TestTwoAgentsOfOneNode starts an agent on a host whose node name another host's agent uses.
func TestTwoAgentsOfOneNode(t *testing.T) {
	kerneltest.OptIn(t, kubeWritesVariable)
	server := kubeServer(t)
	w := newKubeWorld(t, server, "a", "b")
	second := w.nodes["b"]
	second.Flags = append(second.Flags, "--node", "a")
	w.start("a")
	w.waitReady("a")
	first := w.mustAdd("a", "single", "")

	w.start("b") // it ends
	select {
	case <-second.Agent.Done():
	case <-time.After(kerneltest.Slow(20 * time.Second)):
		t.Error("the second agent did not end")
	}
	if log := second.Agent.Log(); !strings.Contains(log, "another agent uses the node name a") {
		t.Errorf("the second agent logged\n%s", log)
	}

	w.proxies["b"].away(t, func() { // it cannot ask
		w.start("b")
		time.Sleep(5 * time.Second)
	})
	kerneltest.Within(t, 30*time.Second, func() error {
		if log := second.Agent.Log(); !strings.Contains(log, "this agent writes nothing") {
			return errors.New(log)
		}
		return nil
	})
	if n := w.proxies["b"].executed(); n != 0 {
		t.Errorf("the API executed %d writes of the second agent", n)
	}
	w.nodes["a"].Agent.Kill()
	time.Sleep(kubeGrace + 5*time.Second)
	if n := w.proxies["b"].executed(); n != 0 {
		t.Errorf("the API executed %d writes of the second agent while the first one was killed", n)
	}
	server.Delete(kubeLeases, "node.a") // an administrator ends the session of the first
	kerneltest.Within(t, 30*time.Second, func() error {
		if w.proxies["b"].executed() == 0 {
			return errors.New("the second agent has not taken over")
		}
		return nil
	})
	w.start("a")
	select {
	case <-w.nodes["a"].Agent.Done():
	case <-time.After(kerneltest.Slow(20 * time.Second)):
		t.Error("the first agent did not end although the second one has its name")
	}
	w.waitReady("b")
	other := w.mustAdd("b", "single", "")
	if slices.Equal(first.ips, other.ips) {
		t.Errorf("two containers have %v", first.ips)
	}
}

// kubeFaultsTime is the time for which requests are disturbed.
const kubeFaultsTime = time.Minute

// TestDisturbedRequests delays, cuts and refuses requests of two agents at random while containers come and go, and ends
// watches. Afterwards the agents are ready, and nothing is left.
func TestDisturbedRequests(t *testing.T) {
	kerneltest.OptIn(t, kubeWritesVariable)
	server := kubeServer(t)
	w := newKubeWorld(t, server, "a", "b")
	for _, name := range []string{"a", "b"} {
		w.start(name)
		w.waitReady(name)
	}
	idle := w.waitForDocuments(nil)
	end := time.Now().Add(kubeFaultsTime)
	for _, p := range w.proxies {
		p.disturb(true)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var problems []error
	added := 0
	for _, node := range []string{"a", "b"} {
		for i := range 3 {
			all.Go(func() {
				for time.Now().Before(end) {
					c, err := w.add(node, []string{"single", "pods", "fixed"}[i], map[bool]string{true: "db-" + node}[i == 2])
					if err == nil {
						err = w.del(c)
					}
					mu.Lock()
					added++
					if err != nil {
						problems = append(problems, err)
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	for _, p := range w.proxies {
		p.disturb(false)
	}
	must(t, errors.Join(problems...))
	for _, node := range []string{"a", "b"} {
		w.waitReady(node)
	}
	want := slices.Clone(idle)
	for _, node := range []string{"a", "b"} { // the fixed addresses of both families stay
		for range 2 {
			want = append(want, "ipaddresses defaultdefault/db-"+node+" node=")
		}
		want = append(want, "fixedaddresses defaultdefault/db-"+node+" node=")
	}
	slices.Sort(want)
	w.waitForDocuments(want)
	counts := map[string]int{}
	for _, p := range w.proxies {
		for fault, n := range p.counts {
			counts[fault] += n
		}
	}
	t.Logf("%d containers came and went; requests by fault: %v", added, counts)
	for _, fault := range []string{"delay", "cut before", "cut after", "409", "410", "429", "500", "503", "500 after", "cut while it answers"} {
		if counts[fault] == 0 {
			t.Errorf("no request had the fault %q", fault)
		}
	}
	if added < 20 {
		t.Errorf("only %d containers came and went", added)
	}
}
