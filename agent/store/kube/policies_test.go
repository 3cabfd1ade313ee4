package kube_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// testPolicies checks which addresses of other nodes the admission policies let an agent take or release.
func testPolicies(t *testing.T, server *kubetest.Server) {
	raw, err := os.ReadFile("../../../contrib/kubernetes/chart/templates/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const group = "/apis/admissionregistration.k8s.io/v1/"
	for doc := range strings.SplitSeq(strings.ReplaceAll(string(raw), "{{ .Release.Namespace }}", namespace), "\n---\n") {
		path := group + "validatingadmissionpolicies"
		if strings.Contains(doc, "kind: ValidatingAdmissionPolicyBinding") {
			path = group + "validatingadmissionpolicybindings"
		}
		if err := server.Create(path, doc); err != nil {
			t.Fatal(err)
		}
	}
	server.Node("v1", nil)
	server.Node("v2", nil)
	admin, config := open(t, server), rest.CopyConfig(server.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":fairlead", Groups: []string{"system:masters"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"v1"}},
	}
	agent, err := kube.Open(kube.Options{Config: config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Close() })
	const key = "addresses/policies/10.0.0.1"
	address := func(node string) string { return `{"owner":"ns/p","node":"` + node + `"}` }
	fixed := func(node string) string { return `{"owner":"ns/p","fixed":true,"node":"` + node + `"}` }
	another := func(node string) string { return `{"owner":"ns/q","fixed":true,"node":"` + node + `"}` }
	const stays = "a fixed address stays with its owner"
	const exists, other = "while the Node v2 exists, only its agent can release this", "cannot claim an address for another node"
	kerneltest.Within(t, time.Minute, func() error { // the policies take effect after a while
		var errs []error
		for _, c := range []struct{ had, has, refusal string }{
			{address("v1"), address("v1"), ""},
			{address("v1"), "", ""},
			{address("v2"), address("v1"), exists},
			{address("v2"), fixed("v1"), exists},
			{address("v2"), address(""), exists},
			{address("v2"), "", exists},
			{fixed("v2"), fixed("v1"), ""},
			{fixed("v2"), fixed(""), exists},
			{fixed("v2"), "", "denied request"}, // by either policy
			{fixed("v1"), "", ""},               // a transaction undoes what it created
			{fixed(""), fixed("v1"), ""},
			{fixed(""), "", stays},
			{fixed(""), another("v1"), stays},
			{fixed("v2"), another("v1"), stays},
			{fixed("v2"), address("v1"), exists},
			{fixed("removed"), "", stays},
			{address("removed"), address("v1"), ""},
			{address("removed"), address("v2"), other},
			{address("removed"), "", ""},
			{fixed("removed"), fixed(""), ""},
		} {
			op := store.Op{Key: key, Expect: commit(t, admin, put(key, c.had, 0))}
			if c.has != "" {
				op.Value = []byte(c.has)
			}
			_, err := agent.Commit(t.Context(), op)
			if (err == nil) != (c.refusal == "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
				errs = append(errs, fmt.Errorf("from %s to %q: %v, want %q", c.had, c.has, err, c.refusal))
			}
			if e, err := admin.Get(t.Context(), key); err == nil {
				commit(t, admin, store.Op{Key: key, Expect: e.Revision})
			}
		}
		return errors.Join(errs...)
	})
	testNodePolicy(t, config)
	testLeasePolicy(t, server, agent, config)
	testPortsPolicy(t, server)
	server.Delete("/api/v1/nodes/v1")
	server.Delete("/api/v1/nodes/v2")
}

// testNodePolicy checks what the agent of the node v1 may change in its Node.
func testNodePolicy(t *testing.T, agent *rest.Config) {
	client, err := rest.HTTPClientFor(agent)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, patch, refusal string }{
		{"v1", `{"metadata": {"annotations": {"fairlead.io/x": "y"}}}`, ""},
		{"v1", `{"metadata": {"labels": {"x": "y"}}}`, "only annotations and conditions"},
		{"v1", `{"metadata": {"finalizers": ["x.y/z"]}}`, "only annotations and conditions"},
		{"v1", `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "u"}]}}`, "only annotations and conditions"},
		{"v2", `{"metadata": {"annotations": {"fairlead.io/x": "y"}}}`, "cannot write another Node"},
		{"v1/status", `{"status": {"conditions": [{"type": "NetworkUnavailable", "status": "False", "reason": "FairleadReady"}]}}`, ""},
		{"v1/status", `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, "only the condition NetworkUnavailable"},
		{"v1/status", `{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}`, "only the condition NetworkUnavailable"},
		{"v1/status", `{"status": {"capacity": {"pods": "1"}}}`, "only the condition NetworkUnavailable"},
		{"v1/status", `{"status": {"images": [{"names": ["x"]}]}}`, "only the condition NetworkUnavailable"},
		{"v1/status", `{"status": {"declaredFeatures": ["X"]}}`, "only the condition NetworkUnavailable"},
		{"v1/status", `{"status": {"runtimeHandlers": [{"name": "x"}]}}`, "only the condition NetworkUnavailable"},
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, agent.Host+"/api/v1/nodes/"+c.path, strings.NewReader(c.patch))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/strategic-merge-patch+json")
		r, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if (r.StatusCode == http.StatusOK) != (c.refusal == "") || !strings.Contains(string(raw), c.refusal) {
			t.Errorf("%s %s: %s, %s", c.path, c.patch, r.Status, raw)
		}
	}
}

// testLeasePolicy checks that the agent of the node v1 writes its session and VNIs, and no other Leases: the namespace may be
// kube-system, which has those of the scheduler and of kube-controller-manager.
func testLeasePolicy(t *testing.T, server *kubetest.Server, agent *kube.Store, config *rest.Config) {
	for _, c := range []struct{ key, refusal string }{
		{cluster.VNIKey(4242), ""},
		{cluster.AliveKey("v2"), "cannot write the session of another node"},
	} {
		revision, err := agent.Commit(t.Context(), put(c.key, "x", 0))
		if err == nil {
			_, err = agent.Commit(t.Context(), store.Op{Key: c.key, Expect: revision})
		}
		if (err == nil) != (c.refusal == "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %v", c.key, err)
		}
	}
	if held, err := agent.Hold(t.Context(), cluster.AliveKey("v1"), []byte("{}"), 0); err != nil {
		t.Error(err)
	} else {
		held.Release()
	}
	const path = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	if err := server.Create(path, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: kube-scheduler}}"); err != nil {
		t.Fatal(err)
	}
	client, err := kube.Client(kube.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	err = client.Delete().AbsPath(path, "kube-scheduler").Do(t.Context()).Error()
	if err == nil || !strings.Contains(err.Error(), "the Lease of another program") {
		t.Errorf("an agent deletes the scheduler's Lease: %v", err)
	}
	server.Delete(path, "kube-scheduler")
}

// testPortsPolicy applies the policy of the page about pods with several networks, which rejects host ports in annotations.
func testPortsPolicy(t *testing.T, server *kubetest.Server) {
	raw, err := os.ReadFile("../../../docs/networks-kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(raw), "### Reject host ports in annotations")
	_, page, _ = strings.Cut(page, "```yaml\n")
	page, _, _ = strings.Cut(page, "```")
	for i, doc := range strings.Split(page, "---\n") {
		path := "/apis/admissionregistration.k8s.io/v1/" + []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}[i]
		if err := server.Create(path, doc); err != nil {
			t.Fatal(err)
		}
	}
	for namespace, labels := range map[string]string{"strict": "{pod-security.kubernetes.io/enforce: baseline}", "free": "{}"} {
		if err := server.Create("/api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+", labels: "+labels+"}}"); err != nil {
			t.Fatal(err)
		}
		if err := server.Create("/api/v1/namespaces/"+namespace+"/serviceaccounts", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}"); err != nil {
			t.Fatal(err)
		}
	}
	kerneltest.Within(t, time.Minute, func() error { // the policy takes effect after a while
		var errs []error
		for _, c := range []struct {
			namespace, annotations string
			ok                     bool
		}{
			{"strict", `{}`, true},
			{"strict", `{"fairlead.io/mac": "02:00:00:00:00:01", "k8s.v1.cni.cncf.io/networks": "lan"}`, true},
			{"strict", `{"fairlead.io/ports": "10250:8443"}`, false},
			{"strict", `{"fairlead.io/ports.eth0": "10250:8443"}`, false},
			{"strict", `{"k8s.v1.cni.cncf.io/networks": "[{\"name\": \"lan\", \"portMappings\": []}]"}`, false},
			{"strict", `{"v1.multus-cni.io/default-network": "[{\"name\": \"lan\", \"p\\u006frtMappings\": []}]"}`, false},
			{"free", `{"fairlead.io/ports": "10250:8443"}`, true},
		} {
			err := server.Create("/api/v1/namespaces/"+c.namespace+"/pods", `{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-", "annotations": `+c.annotations+`},
				"spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}}`)
			if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "must not ask for host ports") {
				errs = append(errs, fmt.Errorf("%s %s: %w", c.namespace, c.annotations, err))
			}
		}
		return errors.Join(errs...)
	})
}

// testForeignFixedAddress creates an object with the name of a pod's fixed addresses and with other content. The pod's key is
// not free then, so the store reports what to do, and does not try again.
func testForeignFixedAddress(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	const key, path = "fixed/foreign/ns/p/eth0", "/apis/fairlead.io/v1alpha1/fixedaddresses"
	revision := commit(t, s, put(key, `{"ips":["10.0.0.1"]}`, 0))
	raw, err := server.Client().Get().AbsPath(path).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`"name":"(foreign\.[^"]*)"`).FindSubmatch(raw)
	if name == nil {
		t.Fatalf("%s", raw)
	}
	commit(t, s, store.Op{Key: key, Expect: revision})
	foreign := fmt.Sprintf(`{apiVersion: fairlead.io/v1alpha1, kind: FixedAddress, metadata: {name: %q}, spec: {network: foreign, pod: ns/q, interface: eth0}}`, name[1])
	if err := server.Create(path, foreign); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context(), key)
	_, err2 := s.Commit(t.Context(), put(key, `{"ips":["10.0.0.1"]}`, 0))
	for _, err := range []error{err, err2} {
		if err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "does not match its name: delete it") {
			t.Errorf("%v", err)
		}
	}
	server.Delete(path, string(name[1]))
}
