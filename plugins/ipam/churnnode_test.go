package ipam

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// These environment variables configure a node's process in TestChurnCluster.
const (
	churnNodeEnv  = "FAIRLEAD_CHURN_NODE"
	churnStoreEnv = "FAIRLEAD_CHURN_STORE" // etcd's endpoints, separated by commas
	churnForEnv   = "FAIRLEAD_CHURN_FOR"   // how long new containers come
	churnRateEnv  = "FAIRLEAD_CHURN_RATE"  // containers per second
	churnCalmEnv  = "FAIRLEAD_CHURN_QUIET" // true: do not restart the agent
)

// A container requests either an address from this node's blocks, allocated on its own disk, or a cluster-wide address
// from the agent.
func churnKinds() map[string]string {
	return map[string]string{"fairlead-ipam": fairleadOf(""), "whereabouts": whereaboutsOf(`"range": "192.168.0.0/22"`)}
}

// churner is a node's runtime. It logs every operation before and after, with a clock that all processes of this
// machine share.
type churner struct {
	t    *testing.T
	node *member
	busy chan struct{} // limits concurrent operations, as a runtime does
	mu   sync.Mutex
	log  *bufio.Writer
}

const churnBusy = 8

// TestChurnNode is the process of one node of TestChurnCluster.
func TestChurnNode(t *testing.T) {
	name := kerneltest.OptIn(t, churnNodeEnv) // TestChurnCluster sets it
	during, err := time.ParseDuration(os.Getenv(churnForEnv))
	if err != nil {
		t.Fatal(err)
	}
	rate := 1
	_, _ = fmt.Sscan(os.Getenv(churnRateEnv), &rate)
	lib := os.Getenv(local.LibVariable)
	open := func() (store.Store, error) {
		return store.Etcd(store.Options{Endpoints: strings.Split(os.Getenv(churnStoreEnv), ",")})
	}
	f, err := os.OpenFile(filepath.Join(lib, "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	earlier, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	c := &churner{t: t, node: &member{t: t, name: name, lib: lib, run: os.Getenv(local.RunVariable), stop: func() {}}, busy: make(chan struct{}, churnBusy), log: bufio.NewWriter(f)}
	c.node.start(open)
	defer func() { c.node.stop() }()
	kerneltest.Until(t, func() bool {
		code, _ := ours(Whereabouts())(t, call{verb: "STATUS", conf: strings.Replace(churnKinds()["whereabouts"], "1.0.0", "1.1.0", 1)})
		_, err := c.node.dir().Read("default")
		return code == 0 && err == nil
	})
	fmt.Print(churnReady)
	_, _ = os.Stdin.Read(make([]byte, 1)) // all start together
	c.tidy(string(earlier))
	restart := func() {
		c.say("agent", "stops")
		c.node.stop()
		c.say("agent", "starts")
		c.node.start(open)
		c.say("agent", "answers")
	}
	if os.Getenv(churnCalmEnv) == "true" {
		restart = func() {}
	}
	c.run(fmt.Sprintf("%s-%d", name, os.Getpid()), rate, during, restart)
	c.settle()
}

// tidy removes what an earlier process of this node left, as a runtime does.
func (c *churner) tidy(earlier string) {
	open := map[string]string{}
	for line := range strings.Lines(earlier) {
		switch f := strings.Fields(line); {
		case len(f) > 2 && f[0] == "begin":
			open[f[1]] = f[2]
		case len(f) > 1 && f[0] == "gone":
			delete(open, f[1])
		}
	}
	for id, kind := range open {
		c.end(id, kind)
	}
}

// run adds containers at a rate and removes them soon after; it calls restart halfway.
func (c *churner) run(prefix string, rate int, during time.Duration, restart func()) {
	var all sync.WaitGroup
	began := time.Now()
	all.Go(func() {
		time.Sleep(during/4 + rand.N(during/2))
		restart()
	})
	for i := 0; time.Since(began) < during; i++ {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		c.busy <- struct{}{}
		kind := []string{"fairlead-ipam", "whereabouts"}[i%2]
		all.Go(func() { c.life(fmt.Sprintf("%s-%d", prefix, i), kind, time.Since(due)) })
	}
	all.Wait()
}

// life adds and deletes one container; it holds a slot when it starts. After a failed ADD it runs DEL as a runtime
// does, and retries if the plugin says so.
func (c *churner) life(id, kind string, late time.Duration) {
	c.say("begin", id, kind, fmt.Sprint(late.Nanoseconds()))
	for end := time.Now().Add(kerneltest.Slow(time.Minute)); ; {
		code, out := c.call("ADD", id, kind)
		if code == 0 {
			c.say("gave", id, kind, strings.Fields(ipsOf(c.t, out)[0])[0])
			break
		}
		c.say("failed", id, kind)
		if say, _ := message(c.t, out); say != 11 || time.Now().After(end) { // 11: try again later
			c.t.Errorf("ADD %s: %s", id, out)
			break
		}
		if code, out := c.call("DEL", id, kind); code != 0 {
			c.t.Errorf("DEL %s after an ADD that failed: %s", id, out)
		}
		time.Sleep(50*time.Millisecond + rand.N(50*time.Millisecond))
	}
	<-c.busy
	time.Sleep(rand.N(400 * time.Millisecond))
	c.busy <- struct{}{}
	c.end(id, kind)
	<-c.busy
}

func (c *churner) end(id, kind string) {
	c.say("going", id, kind)
	if code, out := c.call("DEL", id, kind); code != 0 {
		c.t.Errorf("DEL %s: %s", id, out)
		return
	}
	c.say("gone", id, kind)
}

func (c *churner) call(verb, id, kind string) (int, string) {
	p := Fairlead()
	if kind == "whereabouts" {
		p = Whereabouts()
	}
	return ours(p)(c.t, call{verb: verb, id: id, conf: churnKinds()[kind]})
}

// say appends a line with the time to a file that outlives this process.
func (c *churner) say(words ...string) {
	var at unix.Timespec
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	fmt.Fprintln(c.log, strings.Join(words, " "), at.Nano())
	c.log.Flush()
}

// settle waits until the agent has reported all released addresses to the store.
func (c *churner) settle() {
	kerneltest.Until(c.t, func() bool {
		left, err := c.node.dir().PendingReleases()
		return err == nil && len(left) == 0
	})
}
