package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Size of the simulated cluster.
const (
	scaleNodes     = 5000
	scaleEndpoints = 100_000
)

func nameOfNode(i int) string { return fmt.Sprintf("node-%04d", i) }

func addressOfNode(i int) netip.Prefix {
	n := i + 1
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(n >> 8), byte(n)}), 12)
}

func simulated() *cluster.Network {
	return &cluster.Network{Name: cluster.DefaultNetwork, Subnets: []cluster.Subnet{{CIDR: netip.MustParsePrefix("10.0.0.0/8")}}, NAT: true}
}

// blockNumber returns the i-th block of 64 addresses after from.
func blockNumber(from netip.Addr, i int) netip.Prefix {
	b := from.As4()
	n := uint32(b[0])<<24 + uint32(b[1])<<16 + uint32(b[2])<<8 + uint32(i)<<6
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), 26)
}

func document(v any) []byte {
	raw, _ := json.Marshal(v)
	return raw
}

func blockOp(node int, p netip.Prefix) store.Op {
	return store.Op{Key: cluster.BlockKey(cluster.DefaultNetwork, p), Value: document(cluster.Block{Node: nameOfNode(node), Subnet: simulated().Subnets[0].CIDR})}
}

func endpointOp(i int) store.Op {
	node := i % scaleNodes
	ip := blockNumber(netip.MustParseAddr("10.0.0.0"), node).Addr().Next().Next()
	return store.Op{
		Key:   cluster.EndpointKey(nameOfNode(node), fmt.Sprintf("%064x", i), "eth0"),
		Value: document(cluster.Endpoint{Network: cluster.DefaultNetwork, IPs: []netip.Addr{ip}, Pod: fmt.Sprintf("default/pod-%d", i)}),
	}
}

// fill writes the simulated cluster to a store and returns how long it took.
func fill(t *testing.T, s store.Store) time.Duration {
	t.Helper()
	ops := []store.Op{{Key: cluster.NetworkKey(cluster.DefaultNetwork), Value: document(simulated())}}
	for i := range scaleNodes {
		ops = append(ops,
			store.Op{Key: cluster.NodeKey(nameOfNode(i)), Value: document(cluster.Node{ID: fmt.Sprint(i), Addresses: []netip.Prefix{addressOfNode(i)}})},
			blockOp(i, blockNumber(netip.MustParseAddr("10.0.0.0"), i)))
	}
	for i := range scaleEndpoints {
		ops = append(ops, endpointOp(i))
	}
	began := time.Now()
	for part := range slices.Chunk(ops, store.MaxOps) {
		if _, err := s.Commit(t.Context(), part...); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(began)
}

// agents is a process that runs simulated agents.
type agents struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	dir   string
	began time.Time
}

// startAgents starts a process with many agents. dir may hold the state of an earlier process.
func startAgents(t *testing.T, c *etcdtest.Cluster, dir string, many int, kernel string) *agents {
	t.Helper()
	_ = os.Remove(filepath.Join(dir, "notes"))
	cmd := exec.Command(os.Args[0], "-test.run", "^TestScaleAgent$", "-test.v", "-test.timeout", "0")
	cmd.Env = append(os.Environ(), "FAIRLEAD_SCALE_STORE="+c.Members[0].Endpoint(), "FAIRLEAD_SCALE_DIR="+dir, "FAIRLEAD_SCALE_KERNEL="+kernel, fmt.Sprint("FAIRLEAD_SCALE_AGENTS=", many))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	a := &agents{t: t, cmd: cmd, stdin: in, dir: dir, began: time.Now()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.stop)
	return a
}

func (a *agents) stop() {
	if a.cmd.ProcessState == nil {
		a.stdin.Close()
		if err := a.cmd.Wait(); err != nil {
			a.t.Error(err)
		}
	}
}

// notes returns the names and times of the notes of one kind.
func (a *agents) notes(word string) (names []string, at []time.Time) {
	raw, _ := os.ReadFile(filepath.Join(a.dir, "notes"))
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); f[0] == "failed" {
			a.t.Fatal(line)
		} else if len(f) == 3 && f[0] == word {
			n, _ := strconv.ParseInt(f[2], 10, 64)
			names, at = append(names, f[1]), append(at, time.Unix(0, n))
		}
	}
	return names, at
}

// waitForPeers waits until all peers are configured and returns the time since the process started.
func (a *agents) waitForPeers() (took time.Duration) {
	a.t.Helper()
	kerneltest.Within(a.t, 2*time.Minute, func() error {
		names, at := a.notes("peers")
		n := len(names)
		if n == 0 || names[n-1] != fmt.Sprint(scaleNodes-1) {
			return errors.New("not all peers are configured")
		}
		took = at[n-1].Sub(a.began)
		return nil
	})
	return took
}

// figures are resources used during a measurement.
type figures struct {
	cpu, etcd      time.Duration
	sent, received int // bytes, as etcd counts them
	writes         int // revisions
	took           time.Duration
}

func (f figures) String() string {
	per := func(n int) float64 { return float64(n) / f.took.Seconds() }
	return fmt.Sprintf("agents %.2f%% of a processor, etcd %.2f%%; etcd sent %.0f B/s, received %.0f B/s, %.2f writes/s",
		100*f.cpu.Seconds()/f.took.Seconds(), 100*f.etcd.Seconds()/f.took.Seconds(), per(f.sent), per(f.received), per(f.writes))
}

// measure returns the resources used while do runs.
func (a *agents) measure(c *etcdtest.Cluster, do func()) figures {
	a.t.Helper()
	cpu, _, _ := usage(a.t, a.cmd.Process.Pid)
	etcd, _, _ := usage(a.t, c.Members[0].PID())
	sent, received, writes := traffic(a.t, c)
	began := time.Now()
	do()
	f := figures{took: time.Since(began)}
	cpu2, _, _ := usage(a.t, a.cmd.Process.Pid)
	etcd2, _, _ := usage(a.t, c.Members[0].PID())
	sent2, received2, writes2 := traffic(a.t, c)
	f.cpu, f.etcd, f.sent, f.received, f.writes = cpu2-cpu, etcd2-etcd, sent2-sent, received2-received, writes2-writes
	return f
}

// traffic returns etcd's counters of client traffic.
func traffic(t *testing.T, c *etcdtest.Cluster) (sent, received, writes int) {
	t.Helper()
	r, err := http.Get(c.Members[0].Endpoint() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for s := bufio.NewScanner(r.Body); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "etcd_network_client_grpc_sent_bytes_total":
			sent = int(v)
		case "etcd_network_client_grpc_received_bytes_total":
			received = int(v)
		case "etcd_debugging_mvcc_current_revision":
			writes = int(v)
		}
	}
	return sent, received, writes
}

// paced calls do perSecond times a second.
func paced(perSecond int, during time.Duration, do func(i int)) {
	began := time.Now()
	for i := range int(during.Seconds() * float64(perSecond)) {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		do(i)
	}
	time.Sleep(time.Until(began.Add(during)))
}

// changes adds blocks at a fixed rate. It returns how long each took from the commit's start until the reconciler saw
// it, sorted.
func (a *agents) changes(s store.Store, from *int, perSecond int, during time.Duration) (times []time.Duration) {
	a.t.Helper()
	put := map[string]time.Time{}
	var mu sync.Mutex
	paced(perSecond, during, func(int) {
		p := blockNumber(added().Addr(), *from)
		op := blockOp(1+*from%(scaleNodes-1), p)
		*from++
		mu.Lock()
		put[p.String()] = time.Now()
		mu.Unlock()
		if _, err := s.Commit(context.Background(), op); err != nil {
			a.t.Error(err)
		}
	})
	names, at := a.notes("saw")
	for end := time.Now().Add(kerneltest.Slow(20 * time.Second)); missing(names, put) && time.Now().Before(end); names, at = a.notes("saw") {
		time.Sleep(20 * time.Millisecond)
	}
	for i, name := range names {
		if began, ok := put[name]; ok {
			times = append(times, at[i].Sub(began))
		}
	}
	if len(times) != len(put) {
		a.t.Errorf("%d of %d changes came to the kernel", len(times), len(put))
	}
	slices.Sort(times)
	return times
}

// missing reports whether a block that was put was not seen yet.
func missing(names []string, put map[string]time.Time) bool {
	seen := map[string]bool{}
	for _, n := range names {
		seen[n] = true
	}
	for p := range put {
		if !seen[p] {
			return true
		}
	}
	return false
}

func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[min(len(times)-1, int(math.Ceil(q*float64(len(times))))-1)].Round(100 * time.Microsecond)
}

// TestScale measures one agent, and many at once, in a cluster of 5,000 nodes and 100,000 endpoints with a real etcd.
// See "make bench-scale" and docs/scale.md.
func TestScale(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_SCALE")
	c := etcdtest.Start(t, etcdtest.Options{Flags: []string{"--quota-backend-bytes", "8589934592"}})
	s := c.Store(t)
	t.Logf("%d nodes and %d endpoints written to etcd in %v", scaleNodes, scaleEndpoints, fill(t, s).Round(time.Millisecond))
	from := 0
	for _, kernel := range []string{"", "real"} {
		t.Run("kernel="+kernel, func(t *testing.T) { scaleOne(t, c, s, kernel, &from) })
	}
	t.Run("many", func(t *testing.T) { scaleMany(t, c, s, &from) })
}

func shortDir(t *testing.T) string { // a socket's path is limited to 107 bytes
	dir, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func scaleOne(t *testing.T, c *etcdtest.Cluster, s store.Store, kernel string, from *int) {
	dir := shortDir(t)
	a := startAgents(t, c, dir, 1, kernel)
	took := a.waitForPeers()
	cpu, now, most := usage(t, a.cmd.Process.Pid)
	t.Logf("cold start: all peers configured after %v; processor %v, memory %d MB, at most %d MB", took.Round(time.Millisecond), cpu, now, most)
	time.Sleep(5 * time.Second)
	t.Logf("at rest: %v", a.measure(c, func() { time.Sleep(30 * time.Second) }))
	n := scaleEndpoints + *from
	t.Logf("100 endpoints a second: %v", a.measure(c, func() {
		paced(100, 15*time.Second, func(i int) {
			if _, err := s.Commit(context.Background(), endpointOp(n+i)); err != nil {
				t.Error(err)
			}
		})
	}))
	*from += 1500
	for _, perSecond := range []int{1, 10, 100} {
		var times []time.Duration
		f := a.measure(c, func() { times = a.changes(s, from, perSecond, 20*time.Second) })
		t.Logf("%d blocks a second: p50 %v, p99 %v, at most %v; %v", perSecond, quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1), f)
	}
	_, now, most = usage(t, a.cmd.Process.Pid)
	heap, _ := os.ReadFile(filepath.Join(dir, "heap"))
	t.Logf("memory %d MB, at most %d MB, heap %s MB", now, most, heap)
	a.stop()
	a = startAgents(t, c, dir, 1, kernel)
	took = a.waitForPeers()
	cpu, now, most = usage(t, a.cmd.Process.Pid)
	t.Logf("start with the saved cache: all peers configured after %v; processor %v, memory %d MB, at most %d MB", took.Round(time.Millisecond), cpu, now, most)
}

func scaleMany(t *testing.T, c *etcdtest.Cluster, s store.Store, from *int) {
	const many = 20
	a := startAgents(t, c, shortDir(t), many, "")
	took := a.waitForPeers()
	time.Sleep(5 * time.Second)
	cpu, now, _ := usage(t, a.cmd.Process.Pid)
	t.Logf("%d agents in a process: the first is ready after %v, processor of all %v, memory %d MB", many, took.Round(time.Millisecond), cpu, now)
	t.Logf("at rest: %v", a.measure(c, func() { time.Sleep(30 * time.Second) }))
	for _, perSecond := range []int{1, 10} {
		var times []time.Duration
		f := a.measure(c, func() { times = a.changes(s, from, perSecond, 20*time.Second) })
		t.Logf("%d blocks a second: p50 %v, p99 %v; %v", perSecond, quantile(times, 0.5), quantile(times, 0.99), f)
	}
}

// TestCompileMemory limits the memory that compiling needs per peer. It measures memory because time depends on the
// machine.
func TestCompileMemory(t *testing.T) {
	s := cluster.NewSnapshot()
	s.Set(cluster.NetworkKey(cluster.DefaultNetwork), document(simulated()))
	const peers = 1000
	for i := range peers {
		s.Set(cluster.NodeKey(nameOfNode(i)), document(cluster.Node{ID: fmt.Sprint(i), Addresses: []netip.Prefix{addressOfNode(i)}}))
		op := blockOp(i, blockNumber(netip.MustParseAddr("10.0.0.0"), i))
		s.Set(op.Key, op.Value)
	}
	h := desired.Host{Underlay: backend.Underlay{Link: "eth0", MTU: 1500}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := desired.Compile(s, s.Nodes[nameOfNode(0)], h)
	runtime.ReadMemStats(&after)
	if len(w.Objects) < 3*(peers-1) {
		t.Fatalf("%d objects", len(w.Objects))
	}
	if each := (after.TotalAlloc - before.TotalAlloc) / peers; each > 3000 {
		t.Errorf("%d bytes a peer: want 3000 at most, 1500 were enough", each)
	}
}
