package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
)

// TestPolicyStatus lists policies while one node of two reports a problem, and while none does.
func TestPolicyStatus(t *testing.T) {
	t.Parallel()
	const more = `---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: far, labels: {app: db}}, spec: {nodeName: n2, containers: []}, status: {phase: Running, podIPs: [{ip: 10.0.1.2}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: all, namespace: far}, spec: {podSelector: {}}}
---
{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: both}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2, annotations: {fairlead.io/node: '{"id": "x", "policyProblem": "the kernel is away"}'}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3, annotations: {fairlead.io/node: 'not JSON'}}}
`
	s := &site{t, os.Environ(), nil}
	status := func(text string, args ...string) (int, string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "all.yaml")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		code, out, errs := s.fairlead(append([]string{"policy", "status", "-f", file}, args...)...)
		return code, out + errs
	}
	code, out := status(policyFile + more)
	for _, want := range []string{
		"ClusterNetworkPolicy both  4     0              n2\n", "NetworkPolicy far/all      1     0              n2\n", "NetworkPolicy shop/db      1     0              -\n",
		"node n2: the kernel is away\n",
	} {
		if code != 4 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want 4 with %q:\n%s", code, want, out)
		}
	}
	if code, out := status(policyFile+more, "-o", "json"); code != 4 || !strings.Contains(out, `"n2": "the kernel is away"`) || !strings.Contains(out, `"endpoints": 4`) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if code, out := status(policyFile); code != 0 || !strings.Contains(out, "NetworkPolicy shop/db  1     0") || strings.Contains(out, "node n") {
		t.Errorf("without a problem: exit code %d:\n%s", code, out)
	}
}

// TestPolicyStatusOfFiles checks that the status of policies in files says when they are not in force on the host. The
// kernel may lack the rules, or the agent may report a problem in its store.
func TestPolicyStatusOfFiles(t *testing.T) {
	t.Parallel()
	h, dir := newPolicyHost(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "db.yaml"), []byte("policy: db\nfor: app=db\nin: []\n"), 0o600))
	s, err := store.File(filepath.Join(dir, "store"))
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	h.env = append(h.env, "FAIRLEAD_LIB="+dir, "FAIRLEAD_RUN="+filepath.Join(dir, "run"), "FAIRLEAD_AGENT_STORE_FILE="+filepath.Join(dir, "store"),
		"FAIRLEAD_AGENT_NODE=n1", "FAIRLEAD_AGENT_POLICY_ENABLED=true", "FAIRLEAD_AGENT_POLICY_DIRECTORY="+dir)
	is := func(code int, words string) {
		t.Helper()
		if got, out, errs := h.fairlead("policy", "status"); got != code || !strings.Contains(out, "NetworkPolicy default/db  0") || !strings.Contains(out+errs, words) {
			t.Errorf("exit code %d, want %d with %q:\n%s%s", got, code, words, out, errs)
		}
	}
	is(4, "node n1: network policy is not in force on this host: there is no nftables table")
	h.enforce(t)
	is(0, "")
	storetest.Put(t, s, "nodes/n1", `{"policyProblem": "db.yaml is invalid"}`)
	is(4, "node n1: db.yaml is invalid\n")
}
