package ipam

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/etcdtest"
)

const churnNodes = 10

// churnNode is a node's process, and where its state lies, which outlives it.
type churnNode struct {
	t        *testing.T
	env      []string
	lib, run string
	cmd      *exec.Cmd
	stdin    io.Closer
}

func (n *churnNode) start() {
	n.t.Helper()
	n.cmd = exec.Command(os.Args[0], "-test.run", "^TestChurnNode$", "-test.timeout", "0")
	n.cmd.Env = append(os.Environ(), n.env...)
	n.cmd.Stderr = os.Stderr
	out, err := n.cmd.StdoutPipe()
	must(n.t, err)
	n.stdin, err = n.cmd.StdinPipe()
	must(n.t, err)
	must(n.t, n.cmd.Start())
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err != nil || line != "ready\n" {
		n.t.Fatalf("a node's process said %q: %v", line, err)
	}
	go func() { _, _ = io.Copy(os.Stderr, onlyFailures{r}) }()
}

// onlyFailures drops what a test binary says that passes.
type onlyFailures struct{ r *bufio.Reader }

func (o onlyFailures) Read(p []byte) (int, error) {
	for {
		line, err := o.r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if line != "PASS\n" {
			return copy(p, line), nil
		}
	}
}

func (n *churnNode) begin() { n.stdin.Close() }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Containers come and go on ten nodes, a process each, half of them with addresses of
// blocks and half with ones of the whole cluster. Meanwhile every agent is started
// again, one node's process is killed, and one of three etcd members is killed and
// comes back: no address is two containers' at a time, and none is lost.
func TestChurnCluster(t *testing.T) {
	during, rate := 8*time.Second, 20
	if v := os.Getenv("FAIRLEAD_CHURN"); v != "" {
		var err error
		during, err = time.ParseDuration(v)
		must(t, err)
		rate = 100
	}
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	s := c.Store(t)
	storetest.Put(t, s, cluster.NetworkKey("default"), `{"subnets": [{"cidr": "10.244.0.0/16"}]}`)
	var nodes []*churnNode
	for i := range churnNodes {
		run, err := os.MkdirTemp("", "fl")
		must(t, err)
		t.Cleanup(func() { os.RemoveAll(run) })
		n := &churnNode{t: t, lib: t.TempDir(), run: run}
		n.env = []string{fmt.Sprint(churnNodeEnv, "=n", i), churnStoreEnv + "=" + strings.Join(c.Endpoints(), ","), churnForEnv + "=" + during.String(), fmt.Sprint(churnRateEnv, "=", rate),
			local.LibVariable + "=" + n.lib, local.RunVariable + "=" + n.run}
		n.start()
		t.Cleanup(func() { _ = n.cmd.Process.Kill() })
		nodes = append(nodes, n)
	}
	began := time.Now()
	for _, n := range nodes {
		n.begin()
	}
	time.Sleep(during / 3)
	c.Members[2].Kill()
	must(t, nodes[0].cmd.Process.Kill())
	_ = nodes[0].cmd.Wait()
	nodes[0].start()
	nodes[0].begin()
	time.Sleep(during / 3)
	c.Members[2].Restart()
	for i, n := range nodes {
		if err := n.cmd.Wait(); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
	report(t, nodes, time.Since(began))
	left, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("%d addresses are lost: the store has %s of the last, that nobody holds", len(left), left[0].Value)
	}
}

// span is the time in which a container surely had an address.
type span struct {
	id       string
	from, to int64 // nanoseconds; to 0: for ever
}

// report checks what the nodes wrote down, and says how much that was.
func report(t *testing.T, nodes []*churnNode, took time.Duration) {
	t.Helper()
	held, count, waits := map[string][]*span{}, map[string]int{}, map[string][]time.Duration{}
	for i, n := range nodes {
		raw, err := os.ReadFile(filepath.Join(n.lib, "log"))
		must(t, err)
		open, asked := map[string]*span{}, map[string]int64{}
		for line := range strings.Lines(string(raw)) {
			f := strings.Fields(line)
			at, _ := strconv.ParseInt(f[len(f)-1], 10, 64)
			switch f[0] {
			case "begin":
				asked[f[1]] = at
			case "gave":
				open[f[1]] = &span{id: f[1], from: at}
				held[f[3]] = append(held[f[3]], open[f[1]])
				count[f[2]]++
				waits[f[2]] = append(waits[f[2]], time.Duration(at-asked[f[1]]))
			case "going":
				if s := open[f[1]]; s != nil && s.to == 0 {
					s.to = at
				}
			case "gone":
				delete(open, f[1])
				delete(asked, f[1])
			}
		}
		if len(asked) > 0 {
			t.Errorf("node %d: %d containers were not removed", i, len(asked))
		}
		nothingHeld(t, n)
	}
	for address, list := range held {
		slices.SortFunc(list, func(a, b *span) int { return cmp.Compare(a.from, b.from) })
		for i := range len(list) - 1 {
			if list[i].to == 0 || list[i].to > list[i+1].from {
				t.Errorf("%s was %s's and was given to %s", address, list[i].id, list[i+1].id)
			}
		}
	}
	for kind, n := range count {
		slices.Sort(waits[kind])
		t.Logf("%s: %d containers in %v, %.0f ADDs and as many DELs a second; ADD %v, one in a hundred %v", kind, n, took.Round(time.Second), float64(n)/took.Seconds(), waits[kind][n/2].Round(10*time.Microsecond), waits[kind][n-1-n/100].Round(10*time.Microsecond))
		if n == 0 {
			t.Errorf("%s gave nothing", kind)
		}
	}
	if len(count) != 2 {
		t.Errorf("addresses were given by %v", count)
	}
}

// nothingHeld: on a node's disk no address has an owner.
func nothingHeld(t *testing.T, n *churnNode) {
	t.Helper()
	d := local.Open(n.lib, n.run)
	names, err := os.ReadDir(d.Addresses())
	must(t, err)
	for _, network := range names {
		if addrs, err := d.Holds(network.Name()); err == nil && len(addrs) > 0 {
			t.Errorf("%s: %s of %s are held by nobody", n.env[0], addrs, network.Name())
		}
	}
}
