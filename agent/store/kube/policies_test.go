package kube_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

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
			{fixed("v2"), "", exists},
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
	server.Delete("/api/v1/nodes/v1")
	server.Delete("/api/v1/nodes/v2")
}
