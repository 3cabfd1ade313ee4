package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// apiAway stops the API server while pods serve requests, and ends and starts an agent meanwhile. FAIRLEAD_STORE_AWAY is
// how long the API server is away.
func apiAway(t *testing.T, c *cluster) string {
	away := 20 * time.Second
	if text := os.Getenv("FAIRLEAD_STORE_AWAY"); text != "" {
		var err error
		if away, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	pods := c.startWeb(t, lingerSeconds)
	before := map[string][]string{}
	n := c.hosts[len(c.hosts)-1]
	summary := c.underLoad(t, pods, func() {
		for _, n := range c.hosts {
			before[n.name] = n.state(t)
		}
		if _, err := c.control.run("kill", "-9", c.api); err != nil {
			t.Fatal(err)
		}
		time.Sleep(away / 2)
		old := n.agentProcess(t)
		n.shell(t, "kill -9 "+old)
		kerneltest.Within(t, 5*time.Minute, func() error { // kubelet starts the container again, with a back-off
			if now := n.agentProcess(t); now == "" || now == old {
				return errors.New("the agent was not started again")
			}
			_, err := n.run("/mnt/e2e/fairlead", "agent", "status")
			if exit := fmt.Sprint(err); err != nil && !strings.Contains(exit, "exit status 4") {
				return err // 4: it answers, and is not ready
			}
			return nil
		})
		time.Sleep(away / 2)
		for _, n := range c.hosts {
			kerneltest.Within(t, 30*time.Second, func() error { // the kubelet starts processes for the probes of pods
				if d := kerneltest.DiffLines(before[n.name], n.state(t)); len(d) != 0 {
					return fmt.Errorf("%s changed while the API server was away:\n%s", n.name, strings.Join(d, "\n"))
				}
				return nil
			})
		}
		c.startAPI(t)
		c.mustKubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
	})
	c.waitForAgents(t, len(c.hosts)-1)
	return fmt.Sprintf("away for %v; %s", away, summary)
}

// agentProcess returns the ID of the agent's process on the node, or "".
func (n *kubeNode) agentProcess(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(n.shell(t, "ps -e -o pid=,args=")) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasSuffix(f[1], "fairlead") && f[2] == "agent" {
			return f[0]
		}
	}
	return ""
}

// waitForAgents waits until every agent is ready and reaches a number of other nodes.
func (c *cluster) waitForAgents(t *testing.T, peers int) {
	t.Helper()
	for _, n := range c.hosts {
		kerneltest.Within(t, time.Minute, func() error {
			var s agentState
			raw, err := n.run("/mnt/e2e/fairlead", "agent", "status", "--json")
			if err == nil {
				err = json.Unmarshal([]byte(raw), &s)
			}
			if err == nil && (!s.Ready || s.Peers != peers) {
				err = fmt.Errorf("the agent of %s: %+v, want %d peers", n.name, s, peers)
			}
			return err
		})
	}
}

// nodeJoinsAndLeaves adds a node to the cluster, and deletes its Node. Nothing but the cluster's own objects is involved.
func nodeJoinsAndLeaves(t *testing.T, c *cluster) string {
	start := time.Now()
	others := c.hosts
	defer func() { c.hosts = others }()
	n := c.addNode(t, len(others)+1)
	joined := time.Since(start)
	c.warm(t, n)
	pods := c.startWeb(t, 1)
	for _, p := range pods {
		if p.node == n.name {
			wantAnswer(t, c.inPod(pods[0]), "tcp", at(p.ip, servePort), p.name, pods[0].ip)
			wantAnswer(t, c.inPod(p), "udp", at(pods[0].ip, servePort), pods[0].name, p.ip)
		}
	}
	c.delete(t, "web.yaml")
	route := n.podCIDR(t)
	if _, err := n.run("kill", "-9", n.kubelet); err != nil { // it would register the Node again
		t.Fatal(err)
	}
	c.mustKubectl(t, "delete", "node", n.name)
	start = time.Now()
	for _, o := range others {
		kerneltest.Within(t, 20*time.Second, func() error {
			if routes := o.shell(t, "ip route show"); strings.Contains(routes, route) {
				return fmt.Errorf("%s still has a route to %s:\n%s", o.name, route, routes)
			}
			return nil
		})
	}
	left := time.Since(start)
	c.hosts = others
	c.waitForAgents(t, len(others)-1)
	kerneltest.Within(t, 2*time.Minute, func() error { // Kubernetes' garbage collector deletes it
		if keys := strings.Join(c.storeKeys(t), " "); strings.Contains(keys, "lease.coordination.k8s.io/node."+n.name) {
			return errors.New("the session of the deleted node is still there")
		}
		return nil
	})
	return fmt.Sprintf("ready %v after its start; the other nodes removed its routes %v after its deletion", joined.Round(time.Second), left.Round(100*time.Millisecond))
}

// podCIDR returns the first range that Kubernetes gave the Node.
func (n *kubeNode) podCIDR(t *testing.T) string {
	t.Helper()
	return n.cluster.mustKubectl(t, "get", "node", n.name, "-o", "jsonpath={.spec.podCIDR}")
}

// nodeMoves gives a node another address, as a lease of DHCP that changed does.
func nodeMoves(t *testing.T, c *cluster) string {
	n := c.hosts[len(c.hosts)-1]
	pods := c.startWeb(t, 1)
	to := strings.TrimSuffix(n.ip, n.ip[strings.LastIndex(n.ip, ".")+1:]) + "77"
	move := func(from, to string) {
		t.Helper()
		if _, err := n.run("kill", "-9", n.kubelet); err != nil {
			t.Fatal(err)
		}
		n.shell(t, "ip addr del "+from+"/24 dev up0; ip addr add "+to+"/24 dev up0; ip route replace default via "+outsideV4)
		n.ip = to
		n.startKubelet(t)
		for _, o := range c.hosts[:len(c.hosts)-1] {
			kerneltest.Within(t, time.Minute, func() error {
				if routes := o.shell(t, "ip route show"); !strings.Contains(routes, n.podCIDR(t)+" via "+to+" ") {
					return fmt.Errorf("%s does not reach the pods of %s by %s:\n%s", o.name, n.name, to, routes)
				}
				return nil
			})
		}
	}
	from := n.ip
	start := time.Now()
	move(from, to)
	took := time.Since(start)
	for _, p := range pods {
		if p.node == n.name {
			wantAnswer(t, c.inPod(pods[0]), "tcp", at(p.ip, servePort), p.name, pods[0].ip)
		}
	}
	move(to, from)
	c.waitForAgents(t, len(c.hosts)-1)
	return fmt.Sprintf("reached by its new address %v after the change", took.Round(time.Second))
}

// strangersRefused checks that an agent's account cannot write what belongs to another node.
func strangersRefused(t *testing.T, c *cluster) string {
	n, other := c.hosts[0], c.hosts[1]
	token := strings.TrimSpace(n.shell(t, "cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~projected/kube-api-access-*/token | head -n 1"))
	// An agent may not patch these objects, so the test updates them whole, as the agent does.
	files := 0
	object := func(kind, name, spec string) (file string) {
		files++
		file = fmt.Sprintf("/run/object%d.yaml", files)
		c.control.write(t, file, fmt.Sprintf(`{"apiVersion": "fairlead.io/v1alpha1", "kind": %q, "metadata": {"name": %q}, "spec": %s}`, kind, name, spec))
		return file
	}
	block := func(node string) string {
		return object("IPBlock", "default.10.250.1.0-26", fmt.Sprintf(`{"network": "default", "cidr": "10.250.1.0/26", "subnet": "10.250.0.0/16", "node": %q}`, node))
	}
	address := func(node string) string {
		return object("IPAddress", "default.10.250.2.1", fmt.Sprintf(`{"network": "default", "ip": "10.250.2.1", "owner": "shop/web", "node": %q}`, node))
	}
	absent := func(node string) string {
		return object("IPAddress", "default.10.250.2.3", fmt.Sprintf(`{"network": "default", "ip": "10.250.2.3", "owner": "shop/web", "node": %q}`, node))
	}
	fixed := func(node string) string {
		return object("IPAddress", "default.10.250.2.2", fmt.Sprintf(`{"network": "default", "ip": "10.250.2.2", "owner": "shop/db", "fixed": true%s}`, node))
	}
	changed := func(resource, name, key string, value any) (file string) {
		var o struct {
			Kind string         `json:"kind"`
			Spec map[string]any `json:"spec"`
		}
		if err := json.Unmarshal([]byte(c.mustKubectl(t, "get", resource, name, "-o", "json")), &o); err != nil {
			t.Fatal(err)
		}
		o.Spec[key] = value
		spec, err := json.Marshal(o.Spec)
		if err != nil {
			t.Fatal(err)
		}
		return object(o.Kind, name, string(spec))
	}
	orphan := func() (file string) { // the garbage collector would delete the network
		var o map[string]any
		if err := json.Unmarshal([]byte(c.mustKubectl(t, "get", "networks.fairlead.io", "default", "-o", "json")), &o); err != nil {
			t.Fatal(err)
		}
		o["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "00000000-0000-0000-0000-000000000000"}}
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		c.control.write(t, "/run/orphan.json", string(raw))
		return "/run/orphan.json"
	}
	at := func(node string) string { return fmt.Sprintf(`, "node": %q`, node) }
	for _, file := range []string{block(other.name), address(other.name), absent("removed"), fixed(at(other.name))} {
		c.mustKubectl(t, "apply", "-f", file)
		t.Cleanup(func() { c.mustKubectl(t, "delete", "--ignore-not-found", "-f", file) })
	}
	refused := 0
	const allowed, byRole, byPolicy = "", "forbidden: User", "ValidatingAdmissionPolicy"
	for _, one := range []struct {
		what, refusal string
		argv          []string
	}{
		{"its own Node's annotation", allowed, []string{"annotate", "node", n.name, "fairlead.io/test=1", "--overwrite"}},
		{"its own Node's annotation again", allowed, []string{"annotate", "node", n.name, "fairlead.io/test-"}},
		{"its own Node's labels", byPolicy, []string{"label", "node", n.name, "role=admin"}},
		{"its own Node's taints", byPolicy, []string{"taint", "node", n.name, "x=y:NoSchedule"}},
		{"another Node", byPolicy, []string{"annotate", "node", other.name, "fairlead.io/test=1"}},
		{"another node's session", byPolicy, []string{"-n", "fairlead-system", "delete", "lease", "node." + other.name}},
		{"the default network", byPolicy, []string{"replace", "-f", changed("networks.fairlead.io", "default", "mtu", 1300)}},
		{"the default network with an owner that does not exist", byPolicy, []string{"replace", "-f", orphan()}},
		{"deletion of the network", byRole, []string{"delete", "networks.fairlead.io", "default"}},
		{"a block for another node", byPolicy, []string{"create", "-f", "/run/block.yaml"}},
		{"a block of another node", byPolicy, []string{"replace", "-f", block(n.name)}},
		{"an address of another node", byPolicy, []string{"replace", "-f", address(n.name)}},
		{"an address of a removed node", allowed, []string{"replace", "-f", absent(n.name)}},
		{"the release of another node's address", byPolicy, []string{"replace", "-f", address("")}},
		{"the release of another node's fixed address", byPolicy, []string{"replace", "-f", fixed(at(""))}},
		{"the release of another node's fixed address without its node", byPolicy, []string{"replace", "-f", fixed("")}},
		{"deletion of another node's address", byPolicy, []string{"delete", "ipaddresses.fairlead.io", "default.10.250.2.2"}},
		{"a fixed address whose pod moved here", allowed, []string{"replace", "-f", fixed(at(n.name))}},
		{"its release", allowed, []string{"replace", "-f", fixed("")}},
		{"a fixed address for another node", byPolicy, []string{"replace", "-f", fixed(at(other.name))}},
		{"secrets", byRole, []string{"get", "secrets", "-A"}},
		{"deletion of the agents", byRole, []string{"-n", "fairlead-system", "delete", "pods", "--all"}},
	} {
		c.control.write(t, "/run/block.yaml", `{"apiVersion": "fairlead.io/v1alpha1", "kind": "IPBlock", "metadata": {"name": "default.10.250.0.0-26"},
			"spec": {"network": "default", "cidr": "10.250.0.0/26", "subnet": "10.250.0.0/16", "node": "`+other.name+`"}}`)
		_, err := c.control.run(append([]string{kubernetesBin + "/kubectl", "--server=https://" + controlIP + ":6443", "--insecure-skip-tls-verify", "--token=" + token, "--kubeconfig=/dev/null"}, one.argv...)...)
		switch {
		case one.refusal == allowed && err != nil:
			t.Errorf("%s: %v", one.what, err)
		case one.refusal != allowed && (err == nil || !strings.Contains(err.Error(), one.refusal)):
			t.Errorf("%s: %v, want a refusal with %q", one.what, err, one.refusal)
		case one.refusal != allowed:
			refused++
		}
	}
	return fmt.Sprintf("%d writes and reads refused", refused)
}

// installUnderLoad upgrades the agents with "fairlead kubernetes install" while pods serve requests. The command checks
// the network from inside every node, and so does "status --check".
func installUnderLoad(t *testing.T, c *cluster) string {
	t.Cleanup(func() { c.applyAgents(t); c.waitForAgents(t, len(c.hosts)-1) })
	pods := c.startWeb(t, lingerSeconds)
	before := c.agentPods(t)
	summary := c.underLoad(t, pods, func() {
		out := c.mustFairlead(t, "install", "--pod-cidr="+podRange, "--set=agent.logLevel=debug", "--timeout=110s")
		if !strings.Contains(out, "All checks passed") {
			t.Errorf("install printed\n%s", out)
		}
	})
	for _, p := range c.agentPods(t) {
		if slices.Contains(before, p) {
			t.Errorf("%s was not replaced", p)
		}
	}
	out := c.mustFairlead(t, "status", "--check")
	for _, n := range c.hosts {
		if !strings.Contains(out, n.name+" ") {
			t.Errorf("status printed\n%s", out)
		}
	}
	if !strings.Contains(out, "All checks passed") {
		t.Errorf("status --check printed\n%s", out)
	}
	return summary
}
