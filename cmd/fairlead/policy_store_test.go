package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/bootid"
)

// TestStoredPolicies applies, lists, checks and deletes policies in the agents' store.
func TestStoredPolicies(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	want := func(code int, words string, args ...string) {
		t.Helper()
		got, out, errs := h.fairlead(append([]string{"policy"}, args...)...)
		if got != code || !strings.Contains(out+errs, words) {
			t.Errorf("policy %s: exit code %d, want %d with %q:\n%s%s", strings.Join(args, " "), got, code, words, out, errs)
		}
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	write := func(text string) string { must(t, os.WriteFile(file, []byte(text), 0o600)); return file }
	want(0, "No policies.\n", "list")
	want(2, "--filename is missing", "apply")
	want(1, "no such file", "apply", "-f", file+"x")
	want(3, `document 1: unknown field "inn"`, "apply", "-f", write("policy: db\nfor: app=db\ninn: []\n"))
	want(3, "p.yaml: NetworkPolicy shop/db: ingress[0]: ports[0]", "apply", "-f", write("policy: ok\nfor: '*'\nin: []\n---\n"+strings.Replace(netpol, "5432", "0", 1)))
	want(3, "p.yaml: networkpolicy/default/b_x: invalid name", "apply", "-f", write("policy: a\nfor: app=db\nin: []\n---\npolicy: b_x\nfor: app=db\nin: []\n"))
	want(3, "p.yaml: the file has no policies", "apply", "-f", write("# nothing\n"))
	want(3, "p.yaml: networkpolicy/shop/db occurs twice", "apply", "-f", write(netpol), "-f", file)
	want(0, "No policies.\n", "list") // nothing of an invalid file

	const short = "policy: db\nfor: app=db\nin:\n- from: app=web\n"
	want(0, "skipped objects that are no policies: 1 Job, 1 Pod", "apply", "--dry-run", "-f", write(short+"---\n{kind: Pod, apiVersion: v1, metadata: {name: p, namespace: q}}\n---\n{kind: Job, apiVersion: batch/v1}\n"))
	want(0, "would create networkpolicy/default/db\n", "apply", "--dry-run", "-f", file)
	want(0, "created networkpolicy/default/db\n", "apply", "-f", file)
	want(0, "unchanged networkpolicy/default/db\n", "apply", "-f", file)
	want(0, "would change networkpolicy/default/db\n", "apply", "--dry-run", "-f", write(strings.Replace(short, "web", "job", 1)))
	want(0, "created namespace/shop\ncreated networkpolicy/shop/db\n", "apply", "-f", write(netpol+"---\n{kind: Namespace, apiVersion: v1, metadata: {name: shop, labels: {team: a}}}\n"))
	want(0, "namespace/shop\nnetworkpolicy/default/db\nnetworkpolicy/shop/db\n", "list")

	storetest.Put(t, h.s, "endpoints/n2/c1/eth0", `{"network": "default", "ips": ["10.250.0.7"], "pod": "shop/db", "labels": {"app": "db"}}`)
	storetest.Put(t, h.s, "endpoints/n2/c1/eth1", `{"network": "blue", "ips": ["10.250.0.8"], "pod": "shop/db", "labels": {"app": "db"}}`)
	storetest.Put(t, h.s, "endpoints/n2/c2/eth0", `{"network": "default", "ips": ["10.250.0.9"]}`)
	storetest.Put(t, h.s, "policies/networkpolicy/shop/broken", `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "other", "namespace": "shop"}}`)
	at := []string{"--store-file", filepath.Join(h.dir, "fairlead", "store")}
	want(0, "NetworkPolicy shop/db     1     shop/db@n2\n", append(at, "check")...)
	want(0, "ignored: read policies/networkpolicy/shop/broken: the value is not the object that the key names\n", append(at, "check")...)
	want(0, "networkpolicy/shop/broken is invalid: ", "list")
	want(4, "dropped", append(at, "explain", "10.0.0.9", "shop/db@n2", "80")...)
	want(0, "allowed", append(at, "explain", "10.0.0.9", "10.250.0.8", "80")...)
	want(4, "10.0.0.9 -> 10.250.0.8, network blue: dropped\n  egress of the source:       10.0.0.9 is not a pod: policy does not apply\n  ingress of the destination: no NetworkPolicy allows it: NetworkPolicy shop/db\n",
		append(at, "explain", "--network", "blue", "10.0.0.9", "shop/db@n2", "80")...)
	want(0, `"network": "blue"`, append(at, "explain", "--network", "blue", "10.0.0.9", "shop/db@n2", "5432", "-o", "json")...)
	want(1, "there is no pod shop/db@n2 with an address of its own", append(at, "explain", "--network", "red", "10.0.0.9", "shop/db@n2", "80")...)

	boot, err := bootid.Read()
	must(t, err)
	must(t, podstate.Open(h.local()).WriteEndpoint(&podstate.Endpoint{ // not in a network of the cluster
		Network: "bridged", ContainerID: "c9", IfName: "eth0", Boot: boot, Namespace: "shop", Name: "db",
		Labels: map[string]string{"app": "db"}, Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.2")},
	}))
	want(0, "NetworkPolicy shop/db     2     shop/db@here, shop/db@n2\n", append(at, "check")...)
	want(4, "10.0.0.9 -> 10.77.0.2: dropped\n", append(at, "explain", "10.0.0.9", "shop/db@here", "80")...)

	want(0, "created clusternetworkpolicy/deny\n", "apply", "-f", write(denyPods))
	storetest.Put(t, h.s, "networks/blue", `{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24"}]}`)
	want(4, "ClusterNetworkPolicy deny ingress[0]: unknown pod\n", append(at, "explain", "10.244.0.99", "shop/db@n2", "5432")...)
	want(0, "allowed", append(at, "explain", "10.9.0.99", "shop/db@n2", "5432")...)
	want(4, "ClusterNetworkPolicy deny ingress[0]: unknown pod\n", append(at, "explain", "--network", "blue", "10.9.0.99", "shop/db@n2", "5432")...)

	want(1, "there is no policy db\nList them: fairlead policy list\n", "delete", "db")
	want(0, "would delete networkpolicy/shop/db\n", "delete", "--dry-run", "networkpolicy/shop/db")
	want(0, "deleted networkpolicy/shop/db\ndeleted networkpolicy/shop/broken\n", "delete", "networkpolicy/shop/db", "networkpolicy/shop/broken")
	want(1, "change its policies with kubectl", "--store-kubernetes-kubeconfig", "/x", "list")
}

const netpol = `{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: shop}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 5432}]}]}}
`
