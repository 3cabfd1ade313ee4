package agent

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// recorder is a reconciler without a kernel. Every reconciliation succeeds.
type recorder struct{ self netip.Prefix }

func (r *recorder) host(_, _ []netip.Addr) (desired.Host, error) {
	return desired.Host{Underlay: backend.Underlay{Link: "eth0", Index: 2, MTU: 1500}, Addresses: []netip.Prefix{r.self}}, nil
}
func (r *recorder) learnedRoutes(int) ([]backend.Learned, error)     { return nil, nil }
func (r *recorder) reconcile(*desired.State, bool) *reconcile.Report { return &reconcile.Report{} }
func (r *recorder) invalidate()                                      {}
func (r *recorder) events() <-chan kernelEvents                      { return nil }
func (r *recorder) needsResync(kernelEvents) bool                    { return false }
func (r *recorder) run(ctx context.Context) error                    { <-ctx.Done(); return ctx.Err() }
func (r *recorder) close()                                           {}

// hostOnly reconciles a test namespace but no isolated networks: their namespaces would belong to this machine.
type hostOnly struct{ *kernelReconciler }

func (h hostOnly) reconcile(w *desired.State, _ bool) *reconcile.Report {
	return h.rec.Reconcile(w.Objects)
}

// noting is a reconciler that writes notes: "peers" with the number of peers when it grows, and "saw" when one of the
// measurement's routes first appears, each with the time.
type noting struct {
	reconciler
	out   *bufio.Writer
	most  int
	known map[netip.Prefix]bool
}

func (n *noting) reconcile(w *desired.State, synced bool) *reconcile.Report {
	rep := n.reconciler.reconcile(w, synced)
	now := time.Now().UnixNano()
	for _, o := range w.Objects {
		if r, ok := o.(*kernel.Route); ok && added().Contains(r.Dst.Addr()) && !n.known[r.Dst] {
			n.known[r.Dst] = true
			fmt.Fprintln(n.out, "saw", r.Dst, now)
		}
	}
	if peers := len(w.By[cluster.DefaultNetwork]); peers > n.most {
		n.most = peers
		fmt.Fprintln(n.out, "peers", peers, now)
	}
	if len(rep.Errors) > 0 {
		fmt.Fprintln(n.out, "failed", rep.Errors[0])
	}
	n.out.Flush()
	return rep
}

// added returns the range of the blocks that the measurement adds.
func added() netip.Prefix { return netip.MustParsePrefix("10.128.0.0/9") }

// TestScaleAgent runs the agents that TestScale measures, until standard input closes.
func TestScaleAgent(t *testing.T) {
	endpoint := kerneltest.OptIn(t, "FAIRLEAD_SCALE_STORE") // TestScale sets it
	many, _ := strconv.Atoi(os.Getenv("FAIRLEAD_SCALE_AGENTS"))
	dir := os.Getenv("FAIRLEAD_SCALE_DIR")
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	done := make(chan error, many)
	for i := range many - 1 {
		go func() { done <- simulate(ctx, i+1, endpoint, dir, &recorder{addressOfNode(i + 1)}) }()
	}
	var k reconciler = &recorder{addressOfNode(0)}
	if os.Getenv("FAIRLEAD_SCALE_KERNEL") != "" {
		k = inNamespace(t)
	}
	done <- simulate(ctx, 0, endpoint, dir, k)
	for range many {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// inNamespace returns a reconciler for a new network namespace, and moves this thread there.
func inNamespace(t *testing.T) reconciler {
	kerneltest.Host(t)
	for _, c := range []string{"ip link set lo up", "ip link add eth0 type veth peer name eth0p", "ip link set eth0 up", "ip link set eth0p up", "ip addr add " + addressOfNode(0).String() + " dev eth0"} {
		kerneltest.Run(t, strings.Fields(c)...)
	}
	k, err := newKernelReconciler(&config.Config{Interface: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	return hostOnly{k}
}

// simulate runs the agent of node i. Node 0 writes notes.
func simulate(ctx context.Context, i int, endpoint, dir string, k reconciler) error {
	s, err := store.Etcd(store.Options{Endpoints: []string{endpoint}, Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer s.Close()
	lib, run := filepath.Join(dir, "l", fmt.Sprint(i)), filepath.Join(dir, "r", fmt.Sprint(i))
	for _, d := range []string{lib, run} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	if i == 0 {
		f, err := os.OpenFile(filepath.Join(dir, "notes"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		k = &noting{reconciler: k, out: bufio.NewWriter(f), known: map[netip.Prefix]bool{}}
		go heap(ctx, filepath.Join(dir, "heap"))
	}
	a, err := newAgent(Options{Config: &config.Config{Node: nameOfNode(i), Network: simulated()}, Store: s, Lib: lib, Run: run, Log: slog.New(slog.DiscardHandler)}, k)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// heap writes the heap in use every two seconds, in MB.
func heap(ctx context.Context, file string) {
	for ctx.Err() == nil {
		time.Sleep(2 * time.Second)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = os.WriteFile(file, fmt.Appendf(nil, "%d", m.HeapInuse>>20), 0o600)
	}
}

// usage returns a process's CPU time, and its current and maximum memory in MB.
func usage(t *testing.T, pid int) (cpu time.Duration, now, most int) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	for _, s := range f[11:13] { // utime and stime: proc(5), in hundredths of a second
		n, _ := strconv.Atoi(s)
		cpu += time.Duration(n) * 10 * time.Millisecond
	}
	raw, _ = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		n, _ := strconv.Atoi(f[min(1, len(f)-1)])
		switch f[0] {
		case "VmRSS:":
			now = n >> 10
		case "VmHWM:":
			most = n >> 10
		}
	}
	return cpu, now, most
}
