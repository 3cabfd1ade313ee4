package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const policyFile = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: Hostname, address: n1}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {nodeName: n1, containers: []}, status: {phase: Running, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop, labels: {app: db}}, spec: {nodeName: n1, containers: []}, status: {phase: Running, podIPs: [{ip: 10.0.0.2}, {ip: "fd00::2"}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: new, namespace: shop}, spec: {containers: []}}
- {apiVersion: v1, kind: Pod, metadata: {name: host, namespace: shop}, spec: {hostNetwork: true, containers: []}, status: {phase: Running, podIPs: [{ip: 192.0.2.1}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: done, namespace: shop, labels: {app: db}}, spec: {containers: []}, status: {phase: Succeeded, podIPs: [{ip: 10.0.0.2}]}}
- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 5432}]
`

// TestPolicy checks and explains policies of files.
func TestPolicy(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "all.yaml")
	must(t, os.WriteFile(file, []byte(policyFile), 0o600))
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	must(t, os.WriteFile(bad, []byte(strings.Replace(policyFile, "port: 5432", "port: 70000", 1)), 0o600))
	misspelt := filepath.Join(t.TempDir(), "misspelt.yaml")
	must(t, os.WriteFile(misspelt, []byte(strings.Replace(policyFile, "podSelector: {matchLabels: {app: db}}", "podselector: {}", 1)), 0o600))
	s := &site{t, os.Environ(), nil}
	want := func(code int, words string, args ...string) {
		t.Helper()
		got, out, errs := s.fairlead(append([]string{"policy"}, args...)...)
		if got != code || !strings.Contains(out+errs, words) {
			t.Errorf("policy %s: exit code %d, want %d with %q:\n%s%s", strings.Join(args, " "), got, code, words, out, errs)
		}
	}
	want(0, "NetworkPolicy shop/db  1     shop/db\n", "check", "-f", file)
	want(0, "skipped objects of other kinds: 1 ", "check", "-f", file)
	want(0, `"policy": "NetworkPolicy shop/db"`, "check", "-f", file, "-o", "json")
	want(3, "NetworkPolicy shop/db: ingress[0]: ports[0]: port 70000: want a number from 1 to 65535", "check", "-f", bad)
	want(3, `misspelt.yaml: document 2: NetworkPolicy db: unknown field "spec.podselector"`, "check", "-f", misspelt)
	want(1, "no such file", "check", "-f", file+"x")
	list := filepath.Join(t.TempDir(), "list.yaml")
	must(t, os.WriteFile(list, []byte("- a\n"), 0o600))
	for _, command := range []string{"check", "status", "apply --dry-run", "explain 10.0.0.1 10.0.0.2 80"} {
		want(3, "list.yaml: document 1: want keys with values\n", append(strings.Fields(command), "-f", list)...)
	}
	away := write(t, t.TempDir(), "config", `{"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}]}`)
	want(1, "the API server https://127.0.0.1:1 does not answer: ", "check", "--kubeconfig", away)
	want(0, "No policies.\n", "check", "-f", "/dev/null")
	want(0, "[]\n", "check", "-f", "/dev/null", "-o", "json")

	want(0, "10.0.0.1 -> 10.0.0.2: allowed\n  egress of the source:       no policy selects shop/web\n  ingress of the destination: NetworkPolicy shop/db ingress[0]\n", "explain", "shop/web", "shop/db", "5432", "-f", file)
	want(0, "fd00::1 -> fd00::2: allowed", "explain", "shop/web", "shop/db", "5432/tcp", "-f", file)
	want(4, "ingress of the destination: no NetworkPolicy allows it: NetworkPolicy shop/db\n", "explain", "shop/web", "shop/db", "5432/udp", "-f", file)
	want(4, "198.51.100.1 is not a pod: policy does not apply", "explain", "198.51.100.1", "shop/db", "5432", "-f", file)
	want(0, "a node always reaches its pods", "explain", "192.0.2.1", "shop/db", "1", "-f", file)
	want(0, "a pod always reaches itself", "explain", "shop/db", "shop/db", "1", "-f", file)
	want(4, `"allowed": false`, "explain", "shop/web", "shop/db", "5432", "-f", bad, "-o", "json")
	want(1, "the pod shop/new has no address yet", "explain", "shop/new", "shop/db", "1", "-f", file)
	want(1, "there is no pod shop/host with an address of its own", "explain", "shop/host", "shop/db", "1", "-f", file)
	want(2, `"0" is not a port`, "explain", "shop/web", "shop/db", "0", "-f", file)
	want(2, `"53/icmp" is not a port`, "explain", "shop/web", "shop/db", "53/icmp", "-f", file)
	want(2, `"70000" is not a port`, "explain", "shop/web", "shop/db", "70000", "--kubeconfig", file+"x") // before anything is read
	want(1, "have no address family in common", "explain", "198.51.100.1", "fd00::1", "1", "-f", file)
	want(2, "usage: fairlead policy explain SOURCE DESTINATION PORT", "explain", "shop/web")
	want(1, "there is no kubeconfig", "check", "--kubeconfig", file+"x")
}
