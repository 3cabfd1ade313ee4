package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// startFixed starts a StatefulSet whose pods keep their addresses: on one node, or on all if it is nil. requested are
// addresses for its only pod, or "".
func (c *cluster) startFixed(t *testing.T, name string, replicas int, requested string, only *kubeNode) []kubePod {
	t.Helper()
	if requested != "" {
		requested = ", fairlead.io/ips: '" + requested + "'"
	}
	if only != nil {
		defer c.cordon(t, only)()
	}
	values := map[string]string{"NAME": name, "REPLICAS": fmt.Sprint(replicas), "ANNOTATIONS": requested, "IMAGE": imageName}
	c.control.write(t, "/run/"+name+".yaml", fill(t, "fixed.yaml", values))
	c.mustKubectl(t, "apply", "-f", "/run/"+name+".yaml")
	t.Cleanup(func() { c.endFixed(t, name) })
	c.mustKubectl(t, "rollout", "status", "statefulset/"+name, "--timeout=110s")
	pods := c.pods(t, name)
	if len(pods) != replicas || len(pods[0].ips) != 2 {
		t.Fatalf("the pods are %+v", pods)
	}
	return pods
}

// cordon keeps new pods away from all nodes but one, until the returned function is called.
func (c *cluster) cordon(t *testing.T, only *kubeNode) (uncordon func()) {
	t.Helper()
	var names []string
	for _, n := range c.hosts {
		if n != only {
			names = append(names, n.name)
		}
	}
	c.mustKubectl(t, append([]string{"cordon"}, names...)...)
	uncordon = func() { c.mustKubectl(t, append([]string{"uncordon"}, names...)...) }
	t.Cleanup(uncordon)
	return uncordon
}

// endFixed deletes a StatefulSet, and releases its pods' addresses, which would stay otherwise.
func (c *cluster) endFixed(t *testing.T, name string) {
	t.Helper()
	c.mustKubectl(t, "delete", "-f", "/run/"+name+".yaml", "--wait=true", "--cascade=foreground", "--ignore-not-found")
	fields := `jsonpath={range .items[*]}{.spec.ip} {.spec.owner}{"\n"}{end}`
	kerneltest.Within(t, time.Minute, func() (err error) { // until the agent has read of the DEL
		if left := c.mustKubectl(t, "get", "pods", "-l", "app="+name, "-o", "name"); left != "" {
			return errors.New("pods still exist: " + left)
		}
		for line := range strings.Lines(c.mustKubectl(t, "get", "ipaddresses.fairlead.io", "-o", fields)) {
			if f := strings.Fields(line); strings.HasPrefix(f[1], "default/"+name+"-") {
				_, e := c.store("ipam", "release", f[0])
				err = errors.Join(err, e)
			}
		}
		return err
	})
}

// waitForMove waits until a pod of a StatefulSet is Ready on another node, and then until every node and a pod on every
// node reaches it there. It returns the time of the latter.
func (c *cluster) waitForMove(t *testing.T, was kubePod) (now kubePod, reached time.Duration) {
	t.Helper()
	kerneltest.Within(t, 4*time.Minute, func() error {
		out, err := c.kubectl("get", "pod", was.name, "-o", `jsonpath={.spec.nodeName} {.metadata.deletionTimestamp} {.status.conditions[?(@.type=="Ready")].status}`)
		if f := strings.Fields(out); err == nil && (len(f) != 2 || f[0] == was.node || f[1] != "True") {
			err = fmt.Errorf("pod %s: %s", was.name, out)
		}
		return err
	})
	reachedSince := time.Now()
	app := was.name[:strings.LastIndex(was.name, "-")]
	pods := c.pods(t, app)
	i := slices.IndexFunc(pods, func(p kubePod) bool { return p.name == was.name })
	if i < 0 || pods[i].node == was.node || !slices.Equal(pods[i].ips, was.ips) {
		t.Fatalf("%+v has become one of %+v", was, pods)
	}
	c.wantReached(t, pods[i])
	return pods[i], time.Since(reachedSince)
}

// wantReached waits until every node, and a pod on each, reaches a pod by each of its addresses.
func (c *cluster) wantReached(t *testing.T, to kubePod) {
	t.Helper()
	froms := map[string]probeFunc{"outside": c.fromOutside}
	for _, n := range c.hosts {
		froms[n.name] = n.onNode
	}
	for _, p := range c.pods(t, "web") {
		froms["a pod on "+p.node] = c.inPod(p)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	var problems []string
	for name, from := range froms {
		for _, ip := range to.ips {
			all.Go(func() {
				if err := reaches(from, ip, to.node); err != nil {
					mu.Lock()
					defer mu.Unlock()
					problems = append(problems, fmt.Sprintf("%s: %v", name, err))
				}
			})
		}
	}
	all.Wait()
	if len(problems) > 0 {
		t.Fatalf("%s on %s is not reached:\n%s", to.name, to.node, strings.Join(problems, "\n"))
	}
}

// reaches queries a pod until the answer says that it is on a node.
func reaches(from probeFunc, ip, node string) error {
	for end := time.Now().Add(kerneltest.Slow(30 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
		out, err := from("query", "udp", at(ip, servePort))
		if name, _, _ := strings.Cut(out, " "); err == nil && name == node {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %q, %v", ip, out, err)
		}
	}
}

// wantNotServedTwice fails the case if anybody but the pod on its present node answers.
func (c *cluster) wantNotServedTwice(t *testing.T, p kubePod) {
	t.Helper()
	for _, ip := range p.ips {
		for _, n := range c.hosts {
			for range 20 {
				if out, err := n.onNode("query", "udp", at(ip, servePort)); err != nil || !strings.HasPrefix(out, p.node+" ") {
					t.Errorf("%s from %s: answer %q, %v, want one of %s", ip, n.name, out, err, p.node)
				}
			}
		}
	}
}

// fixedAddresses moves pods of StatefulSets to other nodes, by a drain and by their deletion.
func fixedAddresses(t *testing.T, c *cluster) string {
	c.startWeb(t, 1)
	pods := c.startFixed(t, "db", 3, "", nil)
	requested := c.startFixed(t, "one", 1, requestedIP+","+requestedIP6, c.hosts[0])[0]
	if !slices.Equal(requested.ips, []string{requestedIP, requestedIP6}) {
		t.Errorf("the pod that requests addresses has %v", requested.ips)
	}
	all := append(slices.Clone(pods), requested)
	differentAddresses(t, all)
	for _, p := range all {
		c.wantReached(t, p)
	}
	var times []string
	drained := c.node(t, pods[0].node)
	c.mustKubectl(t, "drain", drained.name, "--ignore-daemonsets", "--timeout=100s")
	for _, p := range all {
		if p.node == drained.name {
			_, took := c.waitForMove(t, p)
			times = append(times, took.Round(10*time.Millisecond).String())
		}
	}
	c.mustKubectl(t, "uncordon", drained.name)
	for _, p := range c.pods(t, "db") { // each one moves to the next node
		next := (slices.IndexFunc(c.hosts, func(n *kubeNode) bool { return n.name == p.node }) + 1) % len(c.hosts)
		uncordon := c.cordon(t, c.hosts[next])
		c.mustKubectl(t, "delete", "pod", p.name, "--wait=false")
		now, took := c.waitForMove(t, p)
		uncordon()
		c.wantNotServedTwice(t, now)
		times = append(times, took.Round(10*time.Millisecond).String())
	}
	c.endFixed(t, "db")
	c.endFixed(t, "one")
	c.checkHealthy(t)
	return "every node and a pod on each reached them after they were Ready within " + strings.Join(times, ", ")
}

// fixedAddressOfDeadNode moves a pod from a node whose kubelet and agent have died, while its old process still serves
// there. Then the node comes back.
func fixedAddressOfDeadNode(t *testing.T, c *cluster) string {
	c.startWeb(t, 1)
	dead := c.hosts[len(c.hosts)-1]
	pod := c.startFixed(t, "db", 1, "", dead)[0]
	c.wantReached(t, pod)
	others := c.hosts
	dead.die(t)
	start := time.Now()
	c.mustKubectl(t, "taint", "node", dead.name, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
	c.hosts = others[:len(others)-1]
	defer func() { c.hosts = others }()
	now, reached := c.waitForMove(t, pod)
	took := time.Since(start)
	if out, err := dead.onNode("query", "udp", at(pod.ip, servePort)); err != nil || !strings.HasPrefix(out, dead.name+" ") {
		t.Errorf("the old process has ended: %q, %v", out, err)
	}
	c.wantNotServedTwice(t, now)
	c.mustKubectl(t, "taint", "node", dead.name, "node.kubernetes.io/out-of-service-")
	dead.startKubelet(t)
	c.hosts = others
	c.mustKubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	c.waitForAgents(t, len(others)-1)
	back := time.Now()
	c.wantReached(t, now) // also from the node that came back
	c.wantNotServedTwice(t, now)
	again := time.Since(back)
	c.endFixed(t, "db")
	c.delete(t, "web.yaml")
	// Until the kubelet deleted the old pod, its route was in the way of the agent's, which the agent reported and counted.
	c.agents(t, "delete", "pod", "-l", "app.kubernetes.io/name="+c.agentName(), "--field-selector=spec.nodeName="+dead.name)
	c.agents(t, "rollout", "status", "daemonset/"+c.agentName(), "--timeout=60s")
	return fmt.Sprintf("Ready elsewhere and reached from all other nodes %v after the taint, and %v after it was Ready; the node that came back reached it %v after it was Ready",
		took.Round(time.Second), reached.Round(10*time.Millisecond), again.Round(100*time.Millisecond))
}
