package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Ports of the service of web.yaml, in both protocols.
const webPort, webNodePort = 80, 30080

// linger is for how many seconds pods serve on, under load, after they are told to
// stop: so long may kube-proxy take on a busy machine.
const linger = 8

// counted is what the probe counts when it asks again and again.
type counted struct {
	Asked, Failed int
	By            map[string]int
	Errors        map[string]struct {
		Times       int
		First, Last time.Time
	}
}

// spread asks so often that every server has its turn: until each of them has
// answered and none failed since.
func spread(t *testing.T, from place, network, to string, pods []kubePod) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		out, err := from("repeat", network, to, fmt.Sprint(8*len(pods)+16))
		var c counted
		if err == nil {
			err = json.Unmarshal([]byte(out), &c)
		}
		if err != nil {
			return err
		}
		for _, p := range pods {
			if c.By[p.name] == 0 {
				err = fmt.Errorf("%s %s: %s never answered: %+v", network, to, p.name, c)
			}
		}
		if c.Failed != 0 || len(c.By) != len(pods) {
			err = fmt.Errorf("%s %s: %+v", network, to, c)
		}
		return err
	})
}

func (c *cluster) serviceIP(t *testing.T) string {
	t.Helper()
	return c.need(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
}

func clusterIP(t *testing.T, c *cluster) string {
	pods := c.web(t, 1)
	ip := c.serviceIP(t)
	seen := map[string]bool{}
	for _, p := range pods {
		if seen[p.node] {
			continue
		}
		seen[p.node] = true
		for _, network := range []string{"tcp", "udp"} {
			spread(t, c.in(p), network, at(ip, webPort), pods) // the pod itself is one of them: a hairpin
			spread(t, c.node(t, p.node).on, network, at(ip, webPort), pods)
		}
	}
	return ""
}

func nodePort(t *testing.T, c *cluster) string {
	pods := c.web(t, 1)
	for _, n := range c.hosts {
		for _, network := range []string{"tcp", "udp"} {
			spread(t, c.outside, network, at(n.ip, webNodePort), pods)
			spread(t, n.on, network, at(n.ip, webNodePort), pods)
		}
		spread(t, c.in(pods[0]), "tcp", at(n.ip, webNodePort), pods)
	}
	return ""
}

func readiness(t *testing.T, c *cluster) string {
	pods := c.web(t, 1)
	ip := c.serviceIP(t)
	out, rest := pods[0], pods[1:]
	if _, err := c.in(out)("ready", "no"); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.hosts {
		spread(t, n.on, "tcp", at(ip, webPort), rest)
		spread(t, c.outside, "tcp", at(n.ip, webNodePort), rest)
	}
	askFrom(t, c.outside, "tcp", at(out.ip, servePort), out.name, "") // it serves on
	if _, err := c.in(out)("ready", "yes"); err != nil {
		t.Fatal(err)
	}
	spread(t, c.outside, "tcp", at(c.hosts[0].ip, webNodePort), pods)
	return ""
}

// load asks without a pause until it is ended, which returns what it counted.
func load(t *testing.T, argv ...string) (end func() counted) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	stop := func(c io.Closer) (n counted) {
		done = true
		_ = c.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", argv, err)
		} else if err := json.Unmarshal([]byte(out.String()), &n); err != nil {
			t.Errorf("%v says %q: %v", argv, out.String(), err)
		}
		return n
	}
	t.Cleanup(func() {
		if !done {
			stop(stdin)
		}
	})
	return func() counted { return stop(stdin) }
}

// underLoad asks the service from outside by a node's port and from each node by
// its address, while something is done, and reports how many were not answered.
// It begins when kube-proxy has heard of all servers: until then it rejects, a
// second longer than the rollout.
func (c *cluster) underLoad(t *testing.T, pods []kubePod, do func()) string {
	t.Helper()
	ip := c.serviceIP(t)
	spread(t, c.outside, "tcp", at(c.hosts[0].ip, webNodePort), pods)
	for _, n := range c.hosts {
		spread(t, n.on, "tcp", at(ip, webPort), pods)
	}
	start := time.Now()
	ends := []func() counted{load(t, "nsenter", "--net="+c.wire.netns, "--", c.programs.probe, "repeat", "tcp", at(c.hosts[0].ip, webNodePort))}
	for _, n := range c.hosts {
		ends = append(ends, load(t, n.within("/mnt/e2e/probe", "repeat", "tcp", at(ip, webPort))...))
	}
	time.Sleep(kerneltest.Slow(time.Second))
	do()
	time.Sleep(kerneltest.Slow(time.Second))
	asked, failed := 0, 0
	for _, end := range ends {
		n := end()
		asked += n.Asked
		failed += n.Failed
		for e, x := range n.Errors {
			t.Logf("%d times, %v to %v after the start at %s: %s", x.Times, x.First.Sub(start).Round(time.Millisecond),
				x.Last.Sub(start).Round(time.Millisecond), start.Format("15:04:05.000"), e)
		}
	}
	if asked < 100 || failed != 0 {
		t.Errorf("%d of %d requests failed", failed, asked)
	}
	return fmt.Sprintf("%d requests, %d failed", asked, failed)
}

func rollingRestart(t *testing.T, c *cluster) string {
	before := c.web(t, linger)
	said := c.underLoad(t, before, func() {
		c.need(t, "rollout", "restart", "deployment/web")
		c.rolledOut(t)
		eventually(t, time.Minute, func() error { return c.gone(t, before) })
	})
	return said
}

// gone is nil when none of the pods is there any more.
func (c *cluster) gone(t *testing.T, pods []kubePod) error {
	t.Helper()
	out, err := c.kubectl("get", "pods", "-o", "name")
	for _, p := range pods {
		if strings.Contains(out, p.name) {
			err = fmt.Errorf("%s is still there", p.name)
		}
	}
	return err
}

func drain(t *testing.T, c *cluster) string {
	before := c.web(t, linger)
	n := c.hosts[len(c.hosts)-1]
	said := c.underLoad(t, before, func() {
		c.need(t, "drain", n.name, "--ignore-daemonsets", "--timeout=100s")
		t.Cleanup(func() { c.need(t, "uncordon", n.name) })
		c.rolledOut(t)
	})
	if held := n.held(t); len(held) != 0 {
		t.Errorf("the drained node holds %v", held)
	}
	if left := difference(n.before, n.state(t)); len(left) != 0 {
		t.Errorf("the drained node is not as before:\n%s", strings.Join(left, "\n"))
	}
	for _, p := range c.pods(t, "web") {
		if p.node == n.name {
			t.Errorf("%s is on the drained node", p.name)
		}
	}
	return fmt.Sprintf("%d pods on %d nodes; %s", len(before), len(c.hosts), said)
}
