package ipam

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/internal/etcdtest"
)

// span is a time in which a container certainly had an address.
type span struct {
	id       string
	from, to int64 // nanoseconds; to 0: no end
}

// churnLog is the combined log of all nodes.
type churnLog struct {
	held  map[string][]*span // by address
	kinds map[string]*churnKind
	late  []time.Duration // delays of containers that waited for a slot
}

// churnKind sums up the ADDs of one plugin.
type churnKind struct {
	failed    int
	add, gone []time.Duration // durations of ADDs with their retries, and of DELs
}

// reportChurn checks the nodes' logs and prints a summary.
func reportChurn(t *testing.T, nodes []*churnNode, took time.Duration) {
	t.Helper()
	l := &churnLog{held: map[string][]*span{}, kinds: map[string]*churnKind{}}
	for i, n := range nodes {
		if left := l.read(t, n); left > 0 {
			t.Errorf("node %d: %d containers were not removed", i, left)
		}
		wantNoAddresses(t, n)
	}
	l.checkModel(t)
	total := 0
	for kind, k := range l.kinds {
		total += len(k.add)
		t.Logf("%s: %.0f ADDs and as many DELs a second for %v; an ADD %s; a DEL %s; %d ADDs failed and were tried again",
			kind, float64(len(k.add))/took.Seconds(), took, spread(k.add), spread(k.gone), k.failed)
	}
	t.Logf("%d containers, %.0f a second; they began late by %s", total, float64(total)/took.Seconds(), spread(l.late))
	if len(l.kinds) != 2 {
		t.Errorf("%d plugins allocated addresses: want 2", len(l.kinds))
	}
}

// spread returns the median and the 99th percentile.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "none"
	}
	slices.Sort(times)
	n := len(times)
	return fmt.Sprintf("%v, one in a hundred %v", times[n/2].Round(10*time.Microsecond), times[n-1-n/100].Round(10*time.Microsecond))
}

// read reads a node's log and returns how many containers are left.
func (l *churnLog) read(t *testing.T, n *churnNode) (left int) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.lib, "log"))
	must(t, err)
	open, asked, going := map[string]*span{}, map[string]int64{}, map[string]int64{}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if f[0] == "agent" {
			continue
		}
		at, _ := strconv.ParseInt(f[len(f)-1], 10, 64)
		id, k := f[1], l.kind(f[2])
		switch f[0] {
		case "begin":
			asked[id] = at
			by, _ := strconv.ParseInt(f[3], 10, 64)
			l.late = append(l.late, time.Duration(by))
		case "failed":
			k.failed++
		case "gave":
			open[id] = &span{id: id, from: at}
			l.held[f[3]] = append(l.held[f[3]], open[id])
			k.add = append(k.add, time.Duration(at-asked[id]))
		case "going":
			if s := open[id]; s != nil && s.to == 0 {
				s.to = at
			}
			going[id] = at
		case "gone":
			k.gone = append(k.gone, time.Duration(at-going[id]))
			delete(open, id)
			delete(asked, id)
		}
	}
	return len(asked)
}

func (l *churnLog) kind(name string) *churnKind {
	if l.kinds[name] == nil {
		l.kinds[name] = &churnKind{}
	}
	return l.kinds[name]
}

// checkModel fails if an address belonged to two containers at a time.
func (l *churnLog) checkModel(t *testing.T) {
	t.Helper()
	for address, list := range l.held {
		slices.SortFunc(list, func(a, b *span) int { return cmp.Compare(a.from, b.from) })
		for i := range len(list) - 1 {
			if list[i].to == 0 || list[i].to > list[i+1].from {
				t.Errorf("%s belonged to %s and was also allocated to %s", address, list[i].id, list[i+1].id)
			}
		}
	}
}

// wantNoAddresses fails if an address on a node's disk has an owner.
func wantNoAddresses(t *testing.T, n *churnNode) {
	t.Helper()
	d := local.Open(n.lib, n.run)
	names, err := os.ReadDir(d.Addresses())
	must(t, err)
	for _, network := range names {
		if addrs, err := d.Holds(network.Name()); err == nil && len(addrs) > 0 {
			t.Errorf("%s: %d addresses of %s have no container", n.env[0], len(addrs), network.Name())
		}
	}
}

// reportCost prints CPU times.
func reportCost(t *testing.T, c *etcdtest.Cluster, nodes []*churnNode) {
	t.Helper()
	var all, members time.Duration
	for _, n := range nodes {
		all += n.spent
	}
	for _, m := range c.Members {
		members += processorTime(m.PID())
	}
	t.Logf("processor time: %v of the nodes with their plugins and agents, %v of etcd", all.Round(time.Second/10), members.Round(time.Second/10))
}

// processorTime returns the CPU time of a running process.
func processorTime(pid int) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11]) // proc(5): utime and stime, in units of 10 ms
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
