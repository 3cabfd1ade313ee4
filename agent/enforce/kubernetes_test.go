package enforce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// node is a node with an enforcer and the API server of a cluster.
type node struct {
	*kubetest.Server
	agent *rest.Config // with the permissions of an agent
	t     *testing.T
	netns string
	log   *kerneltest.Output
	stop  func()
}

// start runs an enforcer in the node's namespace.
func (n *node) start() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	n.log = &kerneltest.Output{}
	e := enforce.New(enforce.Options{Config: n.agent, Node: "n1", Log: slog.New(slog.NewTextHandler(n.log, nil))})
	go func() { ended <- kerneltest.Inside(n.netns, func() error { return e.Run(ctx) }) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			n.t.Errorf("the enforcer ended: %v", err)
		}
	})
	n.t.Cleanup(n.stop)
}

// permit creates the roles of the manifest.
func (n *node) permit() {
	n.t.Helper()
	raw, err := kubernetes.Render(kubernetes.Options{Namespace: kubernetes.DefaultNamespace, Values: kubernetes.Values{"policy": map[string]any{"enabled": true}}})
	must(n.t, err)
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	for doc := range strings.SplitSeq(string(raw), "\n---\n") {
		switch {
		case strings.Contains(doc, "\nkind: ClusterRole\n"):
			n.create(roles, doc)
		case strings.Contains(doc, "\nkind: ClusterRoleBinding\n"):
			n.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", doc)
		}
	}
	n.agent = rest.CopyConfig(n.Config)
	n.agent.Impersonate.UserName = "system:serviceaccount:" + kubernetes.DefaultNamespace + ":fairlead"
}

// table returns the rules in the kernel, without counters.
func (n *node) table() string {
	out, err := exec.Command("nsenter", "--net="+n.netns, "nft", "list", "table", "inet", "fairlead-policy").CombinedOutput()
	if err != nil {
		return "no table"
	}
	return kerneltest.Mask(string(out), kerneltest.Counters)
}

// has waits until the table has a text, or until it has it no more.
func (n *node) has(text string, want bool) time.Duration {
	n.t.Helper()
	return kerneltest.Within(n.t, 20*time.Second, func() error {
		if have := n.table(); strings.Contains(have, text) != want {
			return fmt.Errorf("%q in the table is %v, want %v:\n%s\n%s", text, !want, want, have, n.log)
		}
		return nil
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) create(path, text string) {
	n.t.Helper()
	kerneltest.Eventually(n.t, func() error { // a busy API server may reset a connection
		err := n.Create(path, text)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

const pods = "/api/v1/namespaces/shop/pods"

// pod creates a pod with an address.
func (n *node) pod(name, on, app, addr string) {
	n.t.Helper()
	n.create(pods, `{apiVersion: v1, kind: Pod, metadata: {name: `+name+`, labels: {app: `+app+`}}, spec: {nodeName: `+on+`, containers: [{name: c, image: i}]}}`)
	n.patch(pods+"/"+name+"/status", `{"status": {"phase": "Running", "podIP": "`+addr+`", "podIPs": [{"ip": "`+addr+`"}]}}`)
}

func (n *node) patch(path, text string) {
	n.t.Helper()
	must(n.t, n.Client().Patch("application/strategic-merge-patch+json").AbsPath(path).Body([]byte(text)).Do(context.Background()).Error())
}

const (
	networkPolicies = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies"
	clusterPolicies = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestKubernetes follows a real API server: objects come and go, the API is away, others change the table.
func TestKubernetes(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_KUBERNETES")
	n := &node{Server: kubetest.Start(t), t: t, netns: kerneltest.Netns(t)}
	n.permit()
	n.Node("n1", []string{"192.0.2.1"})
	n.Node("n2", []string{"192.0.2.2"})
	n.create("/api/v1/namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`)
	n.create("/api/v1/namespaces/shop/serviceaccounts", `{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`)
	n.pod("db", "n1", "db", "10.0.0.1")
	n.pod("web", "n2", "web", "10.0.1.1")

	// Without a policy, the agent follows only policies.
	requests := &kerneltest.Output{}
	n.agent.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			fmt.Fprintln(requests, r.URL.Path)
			return next.RoundTrip(r)
		})
	})
	n.start()
	n.has("table inet", true)
	time.Sleep(time.Second)
	if have := requests.String(); !strings.Contains(have, "/networkpolicies") || strings.Contains(have, "/api/v1/") {
		t.Errorf("requests without a policy:\n%s", have)
	}
	n.create(networkPolicies, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}}`)
	n.has("elements = { 10.0.0.1 : goto ingress-", true)

	ctx, stop := context.WithCancel(t.Context())
	names := enforce.FollowNames(ctx, enforce.Options{Config: n.agent, Log: slog.New(slog.DiscardHandler)}, "", nil)
	n.has("elements = { 10.0.1.1 }", true)
	named(t, names, "10.0.1.1", "shop/web", "")
	named(t, names, "192.0.2.2", "", "n2")
	named(t, names, "198.51.100.1", "", "")
	n.has("elements = { 10.0.0.1 : goto ingress-", true)

	// A pod that joins, one that ends, and an address that the next pod gets while the old one still exists.
	n.pod("web2", "n2", "web", "10.0.1.2")
	n.has("10.0.1.2", true)
	n.patch(pods+"/web2/status", `{"status": {"phase": "Succeeded"}}`)
	n.has("10.0.1.2", false)
	time.Sleep(1100 * time.Millisecond) // creation times are in seconds
	n.pod("next", "n2", "other", "10.0.1.1")
	n.has("10.0.1.1", false)
	named(t, names, "10.0.1.1", "shop/next", "")
	stop()
	// At once, as the kubelet does at the end of a pod.
	must(t, n.Client().Delete().AbsPath(pods, "next").Param("gracePeriodSeconds", "0").Do(t.Context()).Error())
	n.has("10.0.1.1", true)

	// Somebody else empties a chain.
	before := n.table()
	kerneltest.In(t, n.netns, "nft", "flush", "chain", "inet", "fairlead-policy", "ingress")
	if took := n.has("ip daddr vmap @ingress4", true); took > kerneltest.Slow(time.Second) {
		t.Errorf("the repair took %v", took)
	}
	if have := n.table(); have != before {
		t.Errorf("after the repair:\n%s", kerneltest.Diff(before, have))
	}
	if !strings.Contains(n.log.String(), "repairing rules of network policy") {
		t.Errorf("the repair was not logged:\n%s", n.log)
	}

	// A restart changes nothing, also while the API is away.
	n.stop()
	if have := n.table(); have != before {
		t.Errorf("after the end:\n%s", kerneltest.Diff(before, have))
	}
	n.Stop()
	n.start()
	time.Sleep(2 * time.Second)
	if have := n.table(); have != before {
		t.Errorf("while the API is away:\n%s", kerneltest.Diff(before, have))
	}
	n.Restart()
	kerneltest.Within(t, time.Minute, func() error {
		return n.Create(networkPolicies, `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: two}, spec: {podSelector: {}, policyTypes: [Egress]}}`)
	})
	n.has("elements = { 10.0.0.1 : goto egress-", true)

	// The type ClusterNetworkPolicy comes later.
	n.Apply(crd(t))
	n.create(clusterPolicies, `{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: all}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}`)
	kerneltest.Within(t, 3*time.Minute, func() error {
		if have := n.table(); !strings.Contains(have, "ClusterNetworkPolicy all ingress[0]") {
			return errors.New(have + n.log.String())
		}
		return nil
	})
	n.statuses()
	n.Delete(networkPolicies, "db")
	n.Delete(networkPolicies, "two")
	n.Delete(clusterPolicies, "all")
	n.has(": goto", false)

	n.stop()
	for _, want := range []bool{true, false} {
		must(t, kerneltest.Inside(n.netns, func() error {
			existed, err := enforce.Remove(t.Context())
			if err == nil && existed != want {
				err = fmt.Errorf("a table existed: %v, want %v", existed, want)
			}
			return err
		}))
	}
	n.has("table inet", false)
}

// statuses checks the conditions of a ClusterNetworkPolicy: while another writer has one, while a node reports a
// problem, and while the policy is invalid. Two agents write them.
func (n *node) statuses() {
	n.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	second, other := make(chan error, 1), kerneltest.Netns(n.t)
	go func() {
		second <- kerneltest.Inside(other, func() error {
			return enforce.New(enforce.Options{Config: n.agent, Node: "n2", Log: slog.New(slog.DiscardHandler)}).Run(ctx)
		})
	}()
	defer func() { stop(); <-second }()
	n.patchAs(types.MergePatchType, clusterPolicies+"/all/status", `{"status": {"conditions": [{"type": "Theirs", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`)
	n.condition("Accepted", "True", "all parts are valid")
	n.condition("Programmed", "True", "no agent reports a problem")
	n.condition("SelectsPods", "True", "number of pods: 2")
	n.condition("Theirs", "True", "")
	before := n.policy().ResourceVersion
	time.Sleep(15 * time.Second) // longer than the pause before a write
	if now := n.policy().ResourceVersion; now != before {
		n.t.Errorf("the status was written again: resource version %s, %s before", now, before)
	}
	const annotation = `{"metadata": {"annotations": {"fairlead.io/node": %q}}}`
	n.patchAs(types.MergePatchType, "/api/v1/nodes/n2", fmt.Sprintf(annotation, `{"id": "x", "addresses": [], "policyProblem": "the kernel is away"}`))
	n.condition("Programmed", "False", "policy is not in force on 1 nodes, or not up to date: n2")
	n.patchAs(types.MergePatchType, "/api/v1/nodes/n2", fmt.Sprintf(annotation, `{"id": "x", "addresses": []}`))
	n.condition("Programmed", "True", "no agent reports a problem")
	n.patchAs(types.MergePatchType, clusterPolicies+"/all", `{"spec": {"egress": [{"action": "Deny", "to": [{"domainNames": ["example.com"]}]}]}}`)
	n.condition("Accepted", "False", "egress[0]: to[0]: domainNames are not supported and match nothing")
	// While the number changes all the time, one of the agents writes it, once in 30 seconds.
	versions, began, more := map[string]bool{}, time.Now(), 0
	for ; time.Since(began) < 70*time.Second; more++ {
		n.pod(fmt.Sprint("more", more), "n2", "web", fmt.Sprint("10.0.2.", more+1))
		versions[n.policy().ResourceVersion] = true
		time.Sleep(time.Second)
	}
	if len(versions) < 2 || len(versions) > 4 {
		n.t.Errorf("within %v the status had %d versions", time.Since(began), len(versions))
	}
	n.condition("SelectsPods", "True", fmt.Sprint("number of pods: ", 2+more))
	n.patchAs(types.MergePatchType, clusterPolicies+"/all", `{"spec": {"subject": {"namespaces": {"matchLabels": {"no": "such"}}}}}`)
	n.condition("SelectsPods", "False", "number of pods: 0")
	n.condition("Theirs", "True", "")
}

func (n *node) patchAs(typ types.PatchType, path, text string) {
	n.t.Helper()
	kerneltest.Eventually(n.t, func() error { // the API server that was stopped may have closed the connection
		return n.Client().Patch(typ).AbsPath(path).Body([]byte(text)).Do(context.Background()).Error()
	})
}

func (n *node) policy() *v1alpha2.ClusterNetworkPolicy {
	n.t.Helper()
	var raw []byte
	kerneltest.Eventually(n.t, func() (err error) {
		raw, err = n.Client().Get().AbsPath(clusterPolicies, "all").Do(context.Background()).Raw()
		return err
	})
	p := &v1alpha2.ClusterNetworkPolicy{}
	must(n.t, json.Unmarshal(raw, p))
	return p
}

// condition waits until the policy has a condition for its generation.
func (n *node) condition(name, status, message string) {
	n.t.Helper()
	kerneltest.Within(n.t, time.Minute, func() error {
		p := n.policy()
		for _, c := range p.Status.Conditions {
			if c.Type == name && string(c.Status) == status && c.Message == message && (name == "Theirs" || c.ObservedGeneration == p.Generation) {
				return nil
			}
		}
		return fmt.Errorf("want %s %s %q, have %+v\n%s", name, status, message, p.Status.Conditions, n.log)
	})
}

// named waits until an address has an owner.
func named(t *testing.T, n *enforce.Names, addr, pod, node string) {
	t.Helper()
	kerneltest.Eventually(t, func() error {
		if p, nd := n.Name(netip.MustParseAddr(addr)); !n.Synced() || p != pod || nd != node {
			return fmt.Errorf("%s is pod %q of node %q, want %q, %q", addr, p, nd, pod, node)
		}
		return nil
	})
}

// crd returns the file with the definition of ClusterNetworkPolicy.
func crd(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/network-policy-api").Output()
	must(t, err)
	file := strings.TrimSpace(string(out)) + "/config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"
	_, err = os.Stat(file)
	must(t, err)
	return file
}
