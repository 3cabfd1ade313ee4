package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// isolatedPolicies let only web to db. The ClusterNetworkPolicies let db not to web, and job to db.
const (
	isolatedNetworkPolicy = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db}, spec: {podSelector: {matchLabels: {role: db}}, ingress: [{from: [{podSelector: {matchLabels: {role: web}}}]}]}}`
	isolatedClusterPolicy = `{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: roles}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}},
		egress: [{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {role: web}}}}]}],
		ingress: [{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {role: job}}}}]}]}}`
)

// rolePod is a pod with a role on an isolated network.
type rolePod struct {
	kubePod
	address string // in the network
}

// policyInIsolatedNetworks enforces both kinds of policies between pods of two nodes, on two isolated networks with the
// same addresses, and on the pods' default network.
func policyInIsolatedNetworks(t *testing.T, c *cluster) {
	crd := policyDefinition(t, c.programs)
	c.mustKubectl(t, "apply", "--server-side", "-f", crd)
	t.Cleanup(func() { c.mustKubectl(t, "delete", "-f", crd) })
	pods := map[string]rolePod{}
	var names []string
	for _, name := range []string{"blue-db", "red-db", "blue-web", "red-job", "blue-job", "red-web"} {
		network, role, _ := strings.Cut(name, "-")
		n := c.hosts[1]
		if role == "db" {
			n = c.hosts[0]
		}
		p, list := c.severalPod(t, name, network, n)
		pods[name] = rolePod{p, list[1].IPs[0]}
		names = append(names, name)
		c.mustKubectl(t, "label", "pod", name, "role="+role)
	}
	same := 0
	for a, p := range pods {
		for b, q := range pods {
			network, role, _ := strings.Cut(a, "-")
			other, otherRole, _ := strings.Cut(b, "-")
			if network == "blue" && other == "red" && role != otherRole && p.address == q.address {
				same++
			}
		}
	}
	if same < 2 {
		t.Errorf("%d pods have an address that a pod with another role has in the other network, want 2: %v", same, pods)
	}
	// check opens connections on the isolated networks and on the default network.
	check := func(want map[string]bool) {
		t.Helper()
		for _, network := range []string{"blue", "red"} {
			for pair, allowed := range want {
				from, to, _ := strings.Cut(pair, " ")
				a, b := pods[network+"-"+from], pods[network+"-"+to]
				for source, address := range map[string]string{a.address: b.address, a.ip: b.ip} {
					if allowed {
						wantAnswer(t, c.inPod(a.kubePod), "tcp", at(address, servePort), b.name, source)
						continue
					}
					c.wantNoAnswer(t, a.kubePod, address)
				}
			}
		}
	}
	check(map[string]bool{"web db": true, "job db": true, "db web": true, "job web": true})
	c.createObject(t, isolatedNetworkPolicy)
	check(map[string]bool{"job db": false, "web db": true, "db web": true, "job web": true})
	c.explainIsolated(t, pods)
	c.createObject(t, isolatedClusterPolicy)
	check(map[string]bool{"db web": false, "job db": true, "web db": true, "job web": false, "web job": true})
	c.mustKubectl(t, "delete", "clusternetworkpolicy", "roles")
	check(map[string]bool{"job db": false, "db web": true, "job web": true})
	c.mustKubectl(t, "delete", "networkpolicy", "db")
	check(map[string]bool{"job db": true})
	c.checkHealthy(t)
	c.deleteSeveral(t, names...)
}

// createObject creates an object of the API.
func (c *cluster) createObject(t *testing.T, text string) {
	t.Helper()
	c.control.write(t, "/run/object.yaml", text)
	c.mustKubectl(t, "apply", "-f", "/run/object.yaml")
}

// wantNoAnswer waits until a pod gets no answer from an address. An agent looks for a new type of object every minute
// or two.
func (c *cluster) wantNoAnswer(t *testing.T, from kubePod, address string) {
	t.Helper()
	kerneltest.Within(t, 3*time.Minute, func() error {
		if out, err := c.inPod(from)("query", "tcp", at(address, servePort)); err == nil {
			return fmt.Errorf("%s gets an answer from %s: %s", from.name, address, out)
		}
		return nil
	})
}

// explainIsolated checks that the commands for one network name its pods, on a node and elsewhere.
func (c *cluster) explainIsolated(t *testing.T, pods map[string]rolePod) {
	t.Helper()
	n := c.hosts[0]
	raw, err := os.ReadFile(c.control.path(kubeConfig))
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, "/run/kubeconfig", string(raw))
	const program = "/mnt/e2e/fairlead"
	out, err := n.run(program, "policy", "explain", "--kernel", "--network", "red", "default/red-job", "default/red-db", fmt.Sprint(servePort), "--kubeconfig=/run/kubeconfig")
	if err == nil || !strings.Contains(out+err.Error(), "network red: dropped") || !strings.Contains(out+err.Error(), "the kernel agrees with the policies") {
		t.Errorf("policy explain: %v\n%s", err, out)
	}
	logged := make(chan error, 1)
	go func() {
		out, err := n.run(program, "policy", "log", "--network", "red", "--count", "1", "--for", "60s", "--kubeconfig=/run/kubeconfig")
		if want := fmt.Sprintf(" -> default/red-db (%s) TCP, network red, ingress: no NetworkPolicy allows it: default/db", at(pods["red-db"].address, servePort)); err == nil &&
			(!strings.Contains(out, "  default/red-job (") || !strings.Contains(out, want)) {
			err = errors.New(out)
		}
		logged <- err
	}()
	for {
		c.wantNoAnswer(t, pods["red-job"].kubePod, pods["red-db"].address)
		select {
		case err := <-logged:
			if err != nil {
				t.Errorf("policy log: %v", err)
			}
			return
		default:
		}
	}
}
