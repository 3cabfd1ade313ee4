package churn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
)

const workerCount = 64

// A small network has spare containers more than addresses. With a small number the network is full only now and then,
// and an ADD that finds no address at another time is a violation.
const spare = 5

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runtimeMain is the runtime. The command once attaches and detaches one container of each network; churn runs the
// package's random test.
func runtimeMain() {
	what, dir, netns := os.Args[1], os.Args[2], os.Args[3:]
	m := &model{owners: map[string]*attachment{}, counts: map[string]int{}}
	nets := networks(dir, os.Getenv("CNI_PATH"))
	for i, n := range nets {
		for c, ns := range netns {
			if n.capacity > 0 && c >= n.capacity+spare {
				break
			}
			m.all = append(m.all, &attachment{net: n, number: c, ifname: fmt.Sprint("eth", i), netns: ns})
		}
	}
	if what == "once" {
		for _, n := range nets {
			first := m.all[slices.IndexFunc(m.all, func(a *attachment) bool { return a.net == n })]
			m.add(context.Background(), first)
			m.del(context.Background(), first)
		}
		m.report()
		return
	}
	seed, err := strconv.ParseUint(os.Getenv("FAIRLEAD_SEED"), 10, 64)
	must(err)
	length, err := time.ParseDuration(os.Getenv("FAIRLEAD_CHURN"))
	must(err)
	end := time.Now().Add(length)
	var workers sync.WaitGroup
	for w := range workerCount {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		workers.Go(func() {
			for time.Now().Before(end) && !m.failed() {
				m.step(r, nets)
			}
		})
	}
	workers.Wait()
	m.settle(nets)
	m.report()
}

func (m *model) report() {
	fmt.Println(m.counts)
	if len(m.violations) > 0 {
		must(errors.New(strings.Join(m.violations, "\n")))
	}
}

// step runs one random operation, and kills one in four.
func (m *model) step(r *rand.Rand, nets []*network) {
	ctx := context.Background()
	if r.IntN(4) == 0 {
		ctx = context.WithValue(ctx, killDelayKey{}, time.Duration(r.Int64N(int64(40*time.Millisecond))))
	}
	if r.IntN(60) == 0 {
		m.gc(ctx, nets[r.IntN(len(nets))])
		return
	}
	a := m.all[r.IntN(len(m.all))]
	if !a.TryLock() {
		return
	}
	defer a.Unlock()
	switch s := m.stateOf(a); {
	case s == unknown && r.IntN(3) > 0, s == attached && r.IntN(2) == 0, s == absent && r.IntN(10) == 0:
		m.del(ctx, a)
	case s == attached && r.IntN(8) == 0:
		m.addAgain(ctx, a)
	case s == attached:
		m.check(ctx, a)
	default:
		m.add(ctx, a)
	}
}

func (a *attachment) runtime() *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: a.id(), NetNS: a.netns, IfName: a.ifname}
	rt.CapabilityArgs = map[string]any{"portMappings": []map[string]any{{"hostPort": a.net.ports + a.number, "containerPort": 80}}}
	return rt
}

func (m *model) add(ctx context.Context, a *attachment) {
	before := m.stateOf(a)
	m.setState(a, adding, nil)
	end := m.record(a.String(), "ADD")
	res, err := a.net.cni.AddNetworkList(ctx, a.net.list, a.runtime())
	end(err)
	switch {
	case err == nil:
		m.setState(a, attached, res)
		m.count("ADD")
		return
	case errors.Is(err, errKilled):
		m.count("ADD killed")
	case a.net.capacity > 0 && strings.Contains(err.Error(), "no IP addresses available") && m.mayBeFull(a, before):
		m.count("ADD without a free address")
	case before == unknown && strings.Contains(err.Error(), "is already attached"):
		m.count("ADD of an existing attachment")
	default:
		m.fail(a.String(), "ADD: %v", err)
	}
	m.setState(a, unknown, nil)
}

// addAgain repeats the ADD of an existing attachment. It is rejected and changes nothing.
func (m *model) addAgain(ctx context.Context, a *attachment) {
	end := m.record(a.String(), "second ADD")
	_, err := a.net.cni.AddNetworkList(ctx, a.net.list, a.runtime())
	end(err)
	switch {
	case err == nil:
		m.fail(a.String(), "a second ADD succeeded")
	case errors.Is(err, errKilled) || strings.Contains(err.Error(), "is already attached"):
		m.count("second ADD")
	default:
		m.fail(a.String(), "second ADD: %v", err)
	}
}

func (m *model) check(ctx context.Context, a *attachment) {
	end := m.record(a.String(), "CHECK")
	err := a.net.cni.CheckNetworkList(ctx, a.net.list, a.runtime())
	end(err)
	switch {
	case err == nil:
		m.count("CHECK")
	case errors.Is(err, errKilled):
		m.count("CHECK killed")
	default:
		m.fail(a.String(), "CHECK: %v", err)
	}
}

func (m *model) del(ctx context.Context, a *attachment) {
	m.setState(a, unknown, nil)
	rt := a.runtime()
	if a.number%3 == 0 {
		rt.NetNS = "" // some runtimes do this
	}
	end := m.record(a.String(), "DEL")
	err := a.net.cni.DelNetworkList(ctx, a.net.list, rt)
	end(err)
	switch {
	case err == nil:
		m.setState(a, absent, nil)
		m.count("DEL")
	case errors.Is(err, errKilled):
		m.count("DEL killed")
	default:
		m.fail(a.String(), "DEL: %v", err)
	}
}

func (m *model) gc(ctx context.Context, n *network) {
	end := m.record(n.list.Name, "GC")
	err := n.cni.GCNetworkList(ctx, n.list, &libcni.GCArgs{ValidAttachments: m.valid(n)})
	end(err)
	switch {
	case err == nil:
		m.count("GC")
	case errors.Is(err, errKilled):
		m.count("GC killed")
	default:
		m.fail(n.list.Name, "GC: %v", err)
	}
}

// settle checks the existing attachments, detaches all, and verifies that no address leaked.
func (m *model) settle(nets []*network) {
	ctx := context.Background()
	for _, a := range m.all {
		if m.stateOf(a) == attached {
			m.check(ctx, a)
		}
	}
	for i, a := range m.all {
		if m.stateOf(a) == unknown && i%2 == 0 {
			continue // GC removes it
		}
		m.del(ctx, a)
	}
	for _, n := range nets {
		m.gc(ctx, n)
	}
	for _, n := range nets {
		m.fill(ctx, n)
	}
}

// fill allocates every address of a small network, one after the other, and releases them. Only then the next ADD finds
// no address.
func (m *model) fill(ctx context.Context, n *network) {
	for _, a := range m.all {
		if n.capacity > 0 && a.net == n {
			m.add(ctx, a)
		}
	}
	if got := m.allocated(n); got != n.capacity {
		m.fail(n.list.Name, "%d addresses could be allocated, want %d", got, n.capacity)
	}
	for _, a := range m.all {
		if n.capacity > 0 && a.net == n {
			m.del(ctx, a)
		}
	}
}

type killDelayKey struct{}

var errKilled = errors.New("killed by the test")

// killingExec runs plugins as processes, and kills a plugin after the time in its context.
type killingExec struct{ invoke.RawExec }

func (k *killingExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	after, ok := ctx.Value(killDelayKey{}).(time.Duration)
	if !ok {
		return k.RawExec.ExecPlugin(ctx, path, stdin, env)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(after, func() { cancel(errKilled) }).Stop()
	return k.RawExec.ExecPlugin(ctx, path, stdin, env)
}
