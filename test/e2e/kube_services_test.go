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

// Ports of the service in web.yaml, for TCP and UDP.
const webPort, webNodePort = 80, 30080

// lingerSeconds is how long pods under load continue to serve after SIGTERM. kube-proxy may take that long on a busy
// machine.
const lingerSeconds = 8

// requestCounts is the output of the probe's command repeat.
type requestCounts struct {
	Requests, Failed int
	Answers          map[string]int
	Errors           map[string]struct {
		Times       int
		First, Last time.Time
	}
}

// wantAllAnswer sends requests to a service until, in one round, every server has answered and no request has failed.
func wantAllAnswer(t *testing.T, from probeFunc, network, to string, pods []kubePod) {
	t.Helper()
	kerneltest.Within(t, 20*time.Second, func() error {
		out, err := from("repeat", network, to, fmt.Sprint(8*len(pods)+16))
		var c requestCounts
		if err == nil {
			err = json.Unmarshal([]byte(out), &c)
		}
		if err != nil {
			return err
		}
		for _, p := range pods {
			if c.Answers[p.name] == 0 {
				err = fmt.Errorf("%s %s: %s never answered: %+v", network, to, p.name, c)
			}
		}
		if c.Failed != 0 || len(c.Answers) != len(pods) {
			err = fmt.Errorf("%s %s: %+v", network, to, c)
		}
		return err
	})
}

func (c *cluster) serviceIP(t *testing.T) string {
	t.Helper()
	return c.mustKubectl(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
}

func clusterIP(t *testing.T, c *cluster) string {
	pods := c.startWeb(t, 1)
	ip := c.serviceIP(t)
	seen := map[string]bool{}
	for _, p := range pods {
		if seen[p.node] {
			continue
		}
		seen[p.node] = true
		for _, network := range []string{"tcp", "udp"} {
			wantAllAnswer(t, c.inPod(p), network, at(ip, webPort), pods) // the pod itself is one of the servers: hairpin
			wantAllAnswer(t, c.node(t, p.node).onNode, network, at(ip, webPort), pods)
		}
	}
	return ""
}

func nodePort(t *testing.T, c *cluster) string {
	pods := c.startWeb(t, 1)
	for _, n := range c.hosts {
		for _, network := range []string{"tcp", "udp"} {
			wantAllAnswer(t, c.fromOutside, network, at(n.ip, webNodePort), pods)
			wantAllAnswer(t, n.onNode, network, at(n.ip, webNodePort), pods)
		}
		wantAllAnswer(t, c.inPod(pods[0]), "tcp", at(n.ip, webNodePort), pods)
	}
	return ""
}

func readiness(t *testing.T, c *cluster) string {
	pods := c.startWeb(t, 1)
	ip := c.serviceIP(t)
	out, rest := pods[0], pods[1:]
	if _, err := c.inPod(out)("ready", "no"); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.hosts {
		wantAllAnswer(t, n.onNode, "tcp", at(ip, webPort), rest)
		wantAllAnswer(t, c.fromOutside, "tcp", at(n.ip, webNodePort), rest)
	}
	wantAnswer(t, c.fromOutside, "tcp", at(out.ip, servePort), out.name, "") // the pod still serves
	if _, err := c.inPod(out)("ready", "yes"); err != nil {
		t.Fatal(err)
	}
	wantAllAnswer(t, c.fromOutside, "tcp", at(c.hosts[0].ip, webNodePort), pods)
	return ""
}

// load sends requests continuously until the caller ends it. The end function returns the counts.
func load(t *testing.T, argv ...string) (end func() requestCounts) {
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
	stop := func(c io.Closer) (n requestCounts) {
		done = true
		_ = c.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", argv, err)
		} else if err := json.Unmarshal([]byte(out.String()), &n); err != nil {
			t.Errorf("%v printed %q: %v", argv, out.String(), err)
		}
		return n
	}
	t.Cleanup(func() {
		if !done {
			stop(stdin)
		}
	})
	return func() requestCounts { return stop(stdin) }
}

// underLoad sends requests to the service while do runs, from outside through a node port and from each node through
// the cluster IP. It reports how many requests failed. It starts when kube-proxy routes to all servers, which happens
// about a second after the rollout.
func (c *cluster) underLoad(t *testing.T, pods []kubePod, do func()) string {
	t.Helper()
	ip := c.serviceIP(t)
	wantAllAnswer(t, c.fromOutside, "tcp", at(c.hosts[0].ip, webNodePort), pods)
	for _, n := range c.hosts {
		wantAllAnswer(t, n.onNode, "tcp", at(ip, webPort), pods)
	}
	refused := c.recordRefusals(t)
	start := time.Now()
	ends := []func() requestCounts{load(t, "nsenter", "--net="+c.wire.netns, "--", c.programs.probe, "repeat", "tcp", at(c.hosts[0].ip, webNodePort))}
	for _, n := range c.hosts {
		ends = append(ends, load(t, n.nsenter("/mnt/e2e/probe", "repeat", "tcp", at(ip, webPort))...))
	}
	time.Sleep(kerneltest.Slow(time.Second))
	do()
	time.Sleep(kerneltest.Slow(time.Second))
	requests, failed := 0, 0
	for _, end := range ends {
		n := end()
		requests += n.Requests
		failed += n.Failed
		for e, x := range n.Errors {
			t.Logf("%d times, %v to %v after the start at %s: %s", x.Times, x.First.Sub(start).Round(time.Millisecond),
				x.Last.Sub(start).Round(time.Millisecond), start.Format("15:04:05.000"), e)
		}
	}
	by := refused()
	if requests < 100 || failed != 0 {
		t.Errorf("%d of %d requests failed; connections were refused by:\n%s", failed, requests, by)
	}
	return fmt.Sprintf("%d requests, %d failed", requests, failed)
}

func rollingRestart(t *testing.T, c *cluster) string {
	pods := c.startWeb(t, lingerSeconds)
	summary := ""
	for range rollouts(t) {
		summary = c.underLoad(t, pods, func() { c.replaceWeb(t, pods) })
		t.Log(summary)
		pods = c.pods(t, "web")
	}
	return summary
}

// replaceWeb replaces the pods of the Deployment web, and waits until they are gone.
func (c *cluster) replaceWeb(t *testing.T, pods []kubePod) {
	t.Helper()
	c.mustKubectl(t, "rollout", "restart", "deployment/web")
	c.waitForRollout(t)
	kerneltest.Within(t, time.Minute, func() error { return c.gone(t, pods) })
}

// gone returns an error while any of the pods exists.
func (c *cluster) gone(t *testing.T, pods []kubePod) error {
	t.Helper()
	out, err := c.kubectl("get", "pods", "-o", "name")
	for _, p := range pods {
		if strings.Contains(out, p.name) {
			err = fmt.Errorf("%s still exists", p.name)
		}
	}
	return err
}

func drain(t *testing.T, c *cluster) string {
	before := c.startWeb(t, lingerSeconds)
	n := c.hosts[len(c.hosts)-1]
	summary := c.underLoad(t, before, func() {
		c.mustKubectl(t, "drain", n.name, "--ignore-daemonsets", "--timeout=100s")
		t.Cleanup(func() { c.mustKubectl(t, "uncordon", n.name) })
		c.waitForRollout(t)
	})
	if addresses := n.allocated(t); len(addresses) != 0 {
		t.Errorf("addresses on the drained node are still allocated: %v", addresses)
	}
	if left := kerneltest.DiffLines(n.baseline, n.state(t)); len(left) != 0 {
		t.Errorf("the drained node differs from before:\n%s", strings.Join(left, "\n"))
	}
	for _, p := range c.pods(t, "web") {
		if p.node == n.name {
			t.Errorf("%s is on the drained node", p.name)
		}
	}
	return fmt.Sprintf("%d pods on %d nodes; %s", len(before), len(c.hosts), summary)
}
