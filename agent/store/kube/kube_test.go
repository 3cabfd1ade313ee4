package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/session"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/source/sourcetest"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

const namespace = "fairlead-system"

// TestStore runs all tests of the store against one API server.
func TestStore(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_KUBERNETES")
	server := kubetest.Start(t)
	server.Apply("../../../contrib/kubernetes/chart/templates/crds.yaml")
	if err := server.Create("/api/v1/namespaces", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+namespace+`"}}`); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *kubetest.Server)
	}{
		{"documents", testDocuments}, {"names", testNames}, {"conflicts", testConflicts}, {"undo", testUndo}, {"nodes", testNodes}, {"flannel", testFlannel}, {"hold", testHold}, {"networkReady", testNetworkReady},
		{"follow", testFollow}, {"schema", testSchema}, {"sessions", testSessions}, {"missing", testMissing}, {"podCIDRs", testPodCIDRs}, {"policies", testPolicies}, {"foreign FixedAddress", testForeignFixedAddress}, {"managers", testManagers}, {"restore", testRestore},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, server) })
	}
}

func open(t *testing.T, server *kubetest.Server) *kube.Store {
	t.Helper()
	return openWith(t, server, "")
}

// openWith opens the store with a prefix of flannel's annotations.
func openWith(t *testing.T, server *kubetest.Server, flannel string) *kube.Store {
	t.Helper()
	s, err := kube.Open(kube.Options{Config: server.Config, Namespace: namespace, Flannel: flannel})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// serve opens the store of an API server that answers with a function.
func serve(t *testing.T, answer http.HandlerFunc) *kube.Store {
	t.Helper()
	api := httptest.NewServer(answer)
	t.Cleanup(api.Close)
	return open(t, &kubetest.Server{Config: &rest.Config{Host: api.URL}})
}

func commit(t *testing.T, s store.Store, ops ...store.Op) int64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func put(key, value string, expect int64) store.Op {
	return store.Op{Key: key, Value: []byte(value), Expect: expect}
}

func wantConflict(t *testing.T, s store.Store, keys []string, ops ...store.Op) {
	t.Helper()
	_, err := s.Commit(t.Context(), ops...)
	if c, ok := errors.AsType[*store.ConflictError](err); !ok || !slices.Equal(c.Keys, keys) {
		t.Errorf("got %v, want a conflict of %v", err, keys)
	}
}

func wantGone(t *testing.T, s store.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if e, err := s.Get(t.Context(), key); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %+v, %v, want none", key, e, err)
		}
	}
}

const network = `{"subnets":[{"cidr":"10.0.0.0/16"},{"cidr":"fd00::/64"}]}`

// testDocuments writes, reads, changes, lists and deletes a document of each type.
func testDocuments(t *testing.T, server *kubetest.Server) {
	s, other := open(t, server), open(t, server)
	for key, values := range map[string][2]string{
		"networks/documents":            {network, `{"subnets":[{"cidr":"10.0.0.0/16"},{"cidr":"fd00::/64"}],"nat":true}`},
		"blocks/documents/10.0.1.0-26":  {`{"node":"a","subnet":"10.0.0.0/16"}`, `{"node":"a","subnet":"10.0.0.0/16","release":true}`},
		"blocks/documents/fd00::40-122": {`{"node":"a","subnet":"fd00::/64"}`, `{"node":"b","machine":"m","subnet":"fd00::/64"}`},
		"addresses/documents/10.0.9.9":  {`{"owner":"ns/p","fixed":true}`, `{"owner":"ns/p","fixed":true,"node":"a","container":"c","ifName":"eth0"}`},
		"addresses/documents/fd00::9":   {`{"owner":"c eth0"}`, `{"owner":"c eth0","node":"a"}`},
		"fixed/documents/ns/p/eth0":     {`{"ips":["10.0.9.9"]}`, `{"ips":["10.0.9.9","fd00::9"]}`},
		"vnis/4711":                     {"documents", "other"},
	} {
		first := commit(t, s, put(key, values[0], 0))
		have := read(t, other, key)
		if have.Revision != first {
			t.Errorf("%s: revision %d, Commit returned %d", key, have.Revision, first)
		}
		sameDocument(t, have, values[0])
		second := commit(t, other, put(key, values[1], first))
		have = read(t, s, key)
		sameDocument(t, have, values[1])
		if second <= first || have.Revision != second {
			t.Errorf("%s: revision %d after %d, read %d", key, second, first, have.Revision)
		}
		prefix, _, _ := strings.Cut(key, "/")
		list, at, err := s.List(t.Context(), prefix+"/")
		if err != nil || at < second || !slices.ContainsFunc(list, func(e store.Entry) bool { return e.Key == key && e.Revision == second }) {
			t.Errorf("the list of %s at %d has no %s: %+v, %v", prefix, at, key, list, err)
		}
		third := commit(t, s, store.Op{Key: key, Expect: second})
		if third <= second {
			t.Errorf("%s: deleted at %d, written at %d", key, third, second)
		}
		wantGone(t, other, key)
	}
	commit(t, s, put("endpoints/a/c/eth0", `{"network":"documents","ips":[]}`, 0))
	wantGone(t, s, "endpoints/a/c/eth0")
	if list, _, err := s.List(t.Context(), "endpoints/"); err != nil || len(list) != 0 {
		t.Errorf("endpoints: %v, %v", list, err)
	}
}

func read(t *testing.T, s store.Store, key string) store.Entry {
	t.Helper()
	e, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if e.Key != key {
		t.Fatalf("the entry of %s has the key %s", key, e.Key)
	}
	return e
}

// sameDocument compares a value as the agent does, which ignores more fields.
func sameDocument(t *testing.T, e store.Entry, want string) {
	t.Helper()
	got := string(e.Value)
	if strings.HasPrefix(e.Key, cluster.FixedPrefix) {
		var f cluster.Fixed
		if err := json.Unmarshal(e.Value, &f); err != nil {
			t.Error(err)
		}
		raw, err := json.Marshal(f)
		if err != nil {
			t.Error(err)
		}
		got = string(raw)
	}
	d, err := cluster.Decode(e.Key, e.Value)
	if err != nil {
		t.Error(err)
	}
	if d != nil {
		raw, err := cluster.Encode(d)
		if err != nil {
			t.Error(err)
		}
		got = string(raw)
	}
	if got != want {
		t.Errorf("%s: %s, want %s", e.Key, got, want)
	}
}

// testNames checks that an object under another name than its content's claims nothing, and which names are refused.
func testNames(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	const blocks = "/apis/fairlead.io/v1alpha1/ipblocks"
	wrong := `{"apiVersion": "fairlead.io/v1alpha1", "kind": "IPBlock", "metadata": {"name": "mine"}, "spec": {"network": "names", "cidr": "10.0.3.0/26", "node": "x", "subnet": "10.0.0.0/16"}}`
	if err := server.Create(blocks, wrong); err != nil {
		t.Fatal(err)
	}
	defer server.Delete(blocks, "mine")
	list, _, err := s.List(t.Context(), "blocks/names/")
	if err != nil || len(list) != 0 {
		t.Errorf("blocks: %+v, %v", list, err)
	}
	revision := commit(t, s, put("blocks/names/10.0.3.0-26", `{"node":"a","subnet":"10.0.0.0/16"}`, 0))
	commit(t, s, store.Op{Key: "blocks/names/10.0.3.0-26", Expect: revision})
	for _, key := range []string{"networks/Blue", "networks/a_b", "networks/-a", "networks/", "blocks/Blue/10.0.3.0-26", "addresses/a_b/10.0.0.1", "x/y"} {
		if _, err := s.Commit(t.Context(), put(key, network, 0)); err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v, want an error that it has no name in Kubernetes", key, err)
		}
	}
	for _, network := range whereaboutsNetworks() {
		testAddressOf(t, s, network)
	}
	testSpellings(t, server, s)
}

// testSpellings changes objects that an administrator created with another spelling of the address.
func testSpellings(t *testing.T, server *kubetest.Server, s *kube.Store) {
	t.Helper()
	for key, object := range map[string]string{
		"addresses/names/fd00::9":  `kind: IPAddress, metadata: {name: names.fd00-0000-0000-0000-0000-0000-0000-0009}, spec: {network: names, ip: "FD00:0::0009", owner: ns/p, fixed: true}`,
		"blocks/names/10.0.4.0-26": `kind: IPBlock, metadata: {name: names.10.0.4.0-26}, spec: {network: names, cidr: 10.0.4.7/26, subnet: 10.0.0.0/16, node: a}`,
	} {
		kind, _, _ := strings.Cut(strings.TrimPrefix(object, "kind: "), ",")
		path := "/apis/fairlead.io/v1alpha1/" + strings.ToLower(kind) + map[bool]string{true: "es", false: "s"}[kind == "IPAddress"]
		if err := server.Create(path, "{apiVersion: fairlead.io/v1alpha1, "+object+"}"); err != nil {
			t.Fatal(err)
		}
		want := `{"owner":"ns/p","fixed":true,"node":"a"}`
		if kind == "IPBlock" {
			want = `{"node":"a","machine":"m","subnet":"10.0.0.0/16"}`
		}
		revision := commit(t, s, put(key, want, read(t, s, key).Revision))
		sameDocument(t, read(t, s, key), want)
		commit(t, s, store.Op{Key: key, Expect: revision})
	}
}

// whereaboutsNetworks returns names of whereabouts networks that no object in Kubernetes can have.
func whereaboutsNetworks() []string {
	return []string{"whereabouts-fd00..-64", "whereabouts-a-2001.db8..1.0-112", "whereabouts-..-64", "whereabouts-" + strings.Repeat("a", 230)}
}

// testAddressOf writes, reads, lists, changes and deletes an address of a network.
func testAddressOf(t *testing.T, s *kube.Store, network string) {
	t.Helper()
	key := cluster.AddressKey(network, netip.MustParseAddr("fd00::1"))
	first := commit(t, s, put(key, `{"owner":"a"}`, 0))
	wantConflict(t, s, []string{key}, put(key, `{"owner":"b"}`, 0))
	second := commit(t, s, put(key, `{"owner":"b"}`, first))
	sameDocument(t, read(t, s, key), `{"owner":"b"}`)
	list, _, err := s.List(t.Context(), cluster.AddressesPrefix+network+"/")
	if err != nil || len(list) != 1 || list[0].Key != key {
		t.Errorf("the list has %+v, %v, want %s", list, err, key)
	}
	commit(t, s, store.Op{Key: key, Expect: second})
	wantGone(t, s, key)
}

// testConflicts checks which operations are refused, and that the others succeed.
func testConflicts(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	key, other := "addresses/conflicts/10.0.0.1", "addresses/conflicts/10.0.0.2"
	first := commit(t, s, put(key, `{"owner":"a"}`, 0))
	wantConflict(t, s, []string{key}, put(key, `{"owner":"b"}`, 0))
	wantConflict(t, s, []string{key}, put(key, `{"owner":"b"}`, first-1))
	wantConflict(t, s, []string{key}, store.Op{Key: key, Expect: first - 1})
	wantConflict(t, s, []string{other}, put(other, `{"owner":"b"}`, first))
	wantConflict(t, s, []string{other}, store.Op{Key: other, Expect: first})
	wantConflict(t, s, []string{key}, put(other, `{"owner":"b"}`, 0), store.Op{Key: key, Verify: true})
	wantConflict(t, s, []string{"addresses/conflicts/"}, put(other, `{"owner":"b"}`, 0), store.Op{Key: "addresses/conflicts/", Below: true, Expect: first - 1})
	wantGone(t, s, other)
	commit(t, s, put(other, `{"owner":"b"}`, 0), store.Op{Key: key, Verify: true, Expect: first}, store.Op{Key: "addresses/conflicts/", Below: true, Expect: first})
	second := commit(t, s, put(key, `{"owner":"c"}`, first+1000)) // not changed since
	commit(t, s, store.Op{Key: key, Expect: second}, store.Op{Key: other, Expect: second})
	wantGone(t, s, key, other)

	// Of several agents that want one address, one gets it.
	won := make(chan int, 8)
	for i := range 8 {
		go func() {
			if _, err := s.Commit(t.Context(), put(key, fmt.Sprintf(`{"owner":"%d"}`, i), 0)); err == nil {
				won <- i
			} else if !errors.Is(err, store.ErrConflict) {
				t.Error(err)
				won <- -1
			} else {
				won <- -1
			}
		}()
	}
	winners := 0
	for range 8 {
		if <-won >= 0 {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d of 8 agents got the address", winners)
	}
}

// testUndo checks that a transaction that fails in the middle leaves nothing.
func testUndo(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	a, b, c := "addresses/undo/10.0.0.1", "addresses/undo/10.0.0.2", "addresses/undo/10.0.0.3"
	at := commit(t, s, put(a, `{"owner":"a"}`, 0), put(b, `{"owner":"b"}`, 0))
	// The schema refuses the last change.
	_, err := s.Commit(t.Context(), put(a, `{"owner":"x"}`, at), store.Op{Key: b, Expect: at}, put(c, `{"owner":7}`, 0))
	if err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an invalid document: %v", err)
	}
	sameDocument(t, read(t, s, a), `{"owner":"a"}`)
	sameDocument(t, read(t, s, b), `{"owner":"b"}`)
	wantGone(t, s, c)
}

// testNodes checks that Nodes join with the addresses of their status, that agents publish in an annotation, and that
// only Kubernetes deletes nodes.
func testNodes(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	server.Node("n1", []string{"192.0.2.1", "2001:db8::1"})
	const host = `"hostAddresses":["192.0.2.1","2001:db8::1"]`
	sameDocument(t, read(t, s, "nodes/n1"), `{"id":"","addresses":["192.0.2.1/32","2001:db8::1/128"],`+host+`}`)
	doc := `{"id":"1","addresses":["192.0.2.1/24"],"version":"v1"}`
	commit(t, s, put("nodes/n1", doc, 1))
	published := strings.TrimSuffix(doc, "}") + "," + host
	sameDocument(t, read(t, s, "nodes/n1"), published+"}")
	for _, unavailable := range []bool{true, false} {
		if err := s.SetNetworkUnavailable(t.Context(), "n1", unavailable, time.Now(), "Test", strings.Repeat("why ", 1000)); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "True", false: "False"}[unavailable]
		sameDocument(t, read(t, s, "nodes/n1"), published+`,"networkUnavailable":"`+want+`"}`)
	}
	if err := s.SetNetworkUnavailable(t.Context(), "missing", true, time.Now(), "Test", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the condition of a missing node: %v", err)
	}
	if _, err := s.Commit(t.Context(), store.Op{Key: "nodes/n1", Expect: 1}); err == nil || !strings.Contains(err.Error(), "kubectl delete node n1") {
		t.Errorf("delete a node: %v", err)
	}
	if _, err := s.Commit(t.Context(), put("nodes/missing", doc, 0)); err == nil || !strings.Contains(err.Error(), "no Node missing") {
		t.Errorf("a node that Kubernetes does not have: %v", err)
	}
	wantConflict(t, s, []string{"nodes/n1"}, put("addresses/nodes/10.0.0.1", `{"owner":"a"}`, 0), store.Op{Key: "nodes/n1", Verify: true})
	server.Delete("/api/v1/nodes/n1")
	wantGone(t, s, "nodes/n1")
}

// testFlannel checks the documents of Nodes with flannel's annotations, and how an agent's document changes them.
func testFlannel(t *testing.T, server *kubetest.Server) {
	s, off := openWith(t, server, cluster.DefaultFlannelAnnotations), open(t, server)
	server.Node("f1", []string{"192.0.2.1"}, "10.244.1.0/24")
	annotate := func(values map[string]any) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
		if err == nil {
			err = server.Client().Patch(types.MergePatchType).AbsPath("/api/v1/nodes/f1").Body(body).Do(t.Context()).Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	have := func() map[string]string {
		t.Helper()
		n := &corev1.Node{}
		if err := server.Client().Get().AbsPath("/api/v1/nodes/f1").Do(t.Context()).Into(n); err != nil {
			t.Fatal(err)
		}
		return n.Annotations
	}
	names := cluster.NewFlannelAnnotations(cluster.DefaultFlannelAnnotations)
	lease := &cluster.FlannelLease{PublicIP: netip.MustParseAddr("198.18.0.2"), Type: "vxlan", VNI: 1, MAC: "02:00:00:00:00:01"}
	annotate(names.Of(lease)) // flanneld
	const host, tunnel = `"podCIDRs":["10.244.1.0/24"],"hostAddresses":["192.0.2.1"]`, `"tunnel":"02:00:00:00:00:01"`
	const theirs = `"addresses":["198.18.0.2/32"],` + host + `,"flannel":{"type":"vxlan","mac":"02:00:00:00:00:01"},` + tunnel + "}"
	sameDocument(t, read(t, s, "nodes/f1"), `{"id":"",`+theirs)
	sameDocument(t, read(t, off, "nodes/f1"), `{"id":"","addresses":["192.0.2.1/32"],`+host+"}")

	const ours = `{"id":"1","addresses":["198.18.0.2/24"],`
	const more = `"flannelLease":{"publicIP":"198.18.0.2","type":"vxlan","vni":1,"mac":"02:00:00:00:00:01"},` + tunnel + "}"
	commit(t, s, put("nodes/f1", ours+more, 1)) // our agent, next to flannel nodes
	sameDocument(t, read(t, s, "nodes/f1"), ours+host+","+more)
	if a := have(); !names.Match(lease, a) {
		t.Errorf("the annotations are %v", a)
	}
	annotate(names.Of(&cluster.FlannelLease{PublicIP: lease.PublicIP, Type: "vxlan", VNI: 1, MAC: "02:00:00:00:00:09"})) // the node goes back to flanneld
	sameDocument(t, read(t, s, "nodes/f1"), `{"id":"1",`+strings.ReplaceAll(theirs, "00:01", "00:09"))

	commit(t, s, put("nodes/f1", ours+tunnel+"}", 1)) // our agent, after the switch
	sameDocument(t, read(t, s, "nodes/f1"), ours+host+","+tunnel+"}")
	if a := have(); !names.Match(nil, a) {
		t.Errorf("flannel's annotations are still there: %v", a)
	}
	annotate(names.Of(lease)) // flanneld starts on the node again
	if e := read(t, s, "nodes/f1"); !strings.Contains(string(e.Value), `"flannel":{`) {
		t.Errorf("flanneld manages the node, but its document is %s", e.Value)
	}
	server.Delete("/api/v1/nodes/f1")
}

// testNetworkReady checks the condition of a Network, which kubectl get shows.
func testNetworkReady(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	commit(t, s, put("networks/ready", `{"subnets":[{"cidr":"10.0.0.0/16"}]}`, 0))
	if _, _, err := s.List(t.Context(), "networks/"); err != nil { // as an agent does, before it has a state to report
		t.Fatal(err)
	}
	status := func() (out struct {
		Metadata struct{ ResourceVersion string }
		Status   struct {
			Conditions []struct{ Type, Status, Reason, Message, LastTransitionTime string }
		}
	}) {
		t.Helper()
		raw, err := server.Client().Get().AbsPath("/apis/fairlead.io/v1alpha1/networks/ready").Do(t.Context()).Raw()
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := status().Metadata.ResourceVersion
	for _, step := range []struct {
		problem, status, message string
		writes                   bool
	}{
		{"", "True", "agents use the network", true},
		{"", "True", "agents use the network", false},
		{"its vni 7 belongs to network red", "False", "its vni 7 belongs to network red", true},
	} {
		if err := s.SetNetworkReady(t.Context(), "ready", step.problem); err != nil {
			t.Fatal(err)
		}
		now := status()
		if c := now.Status.Conditions; len(c) != 1 || c[0].Type != "Ready" || c[0].Status != step.status || c[0].Message != step.message || c[0].LastTransitionTime == "" {
			t.Errorf("%q: the conditions are %+v", step.problem, c)
		}
		if written := now.Metadata.ResourceVersion != before; written != step.writes {
			t.Errorf("%q: written %v, want %v", step.problem, written, step.writes)
		}
		before = now.Metadata.ResourceVersion
	}
	if err := s.SetNetworkReady(t.Context(), "missing", ""); err != nil {
		t.Errorf("a network that was deleted: %v", err)
	}

	// Conditions of other programs stay.
	add := `[{"op": "add", "path": "/status/conditions/-", "value": {"type": "Synced", "status": "True"}}]`
	if err := server.Client().Patch(types.JSONPatchType).AbsPath("/apis/fairlead.io/v1alpha1/networks/ready/status").Body([]byte(add)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	for _, problem := range []string{"its vni 7 belongs to network blue", "its vni 7 belongs to network red"} {
		if err := s.SetNetworkReady(t.Context(), "ready", problem); err != nil {
			t.Fatal(err)
		}
	}
	if c := status().Status.Conditions; len(c) != 2 || c[0].Message != "its vni 7 belongs to network red" || c[1].Type != "Synced" {
		t.Errorf("with the condition of another program, the conditions are %+v", c)
	}
	before = status().Metadata.ResourceVersion

	// Another agent writes nothing if its list or its watch has the condition already.
	other := open(t, server)
	_, revision, err := other.List(t.Context(), "networks/")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range []string{"its vni 7 belongs to network red", ""} {
		if err := other.SetNetworkReady(t.Context(), "ready", problem); err != nil {
			t.Fatal(err)
		}
		if now := status(); (now.Metadata.ResourceVersion == before) != (problem != "") {
			t.Errorf("%q: revision %s after %s", problem, now.Metadata.ResourceVersion, before)
		}
	}
	before = status().Metadata.ResourceVersion
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	third := open(t, server)
	_ = third.Watch(ctx, "networks/", revision, func(b store.Batch) error {
		if strconv.FormatInt(b.Revision, 10) == before {
			stop()
		}
		return nil
	})
	if err := third.SetNetworkReady(t.Context(), "ready", ""); err != nil {
		t.Fatal(err)
	}
	if now := status().Metadata.ResourceVersion; now != before {
		t.Errorf("written again: revision %s after %s", now, before)
	}
}

// testHold checks that one agent holds a session, that it stays without a renewal, and that others get it after the holder
// has released it, or after the node was started again or replaced.
func testHold(t *testing.T, server *kubetest.Server) {
	s, other := open(t, server), open(t, server)
	const of1, of2 = `{"id":"m1","instance":"boot1 x"}`, `{"id":"m2","instance":"boot2 y"}`
	if _, err := s.Hold(t.Context(), "alive/h", []byte(of1), 0); err == nil || !strings.Contains(err.Error(), "no Node h") {
		t.Errorf("the session of a node that Kubernetes does not have: %v", err)
	}
	server.Node("h", nil)
	server.NodeBoot("h", "boot1")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	held, err := s.Hold(ctx, "alive/h", []byte(of1), 0)
	if err != nil {
		t.Fatal(err)
	}
	if e := read(t, other, "alive/h"); string(e.Value) != of1 || e.Revision != held.Revision {
		t.Errorf("the session is %+v, Hold returned %d", e, held.Revision)
	}
	if list, _, err := other.List(t.Context(), "alive/"); err != nil || len(list) != 1 {
		t.Errorf("the sessions are %v, %v", list, err)
	}
	if _, err := other.Hold(t.Context(), "alive/h", []byte(of2), 0); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second holder: %v", err)
	}
	commit(t, s, put("addresses/hold/10.0.0.1", `{"owner":"a"}`, 0), store.Op{Key: "alive/h", Verify: true, Expect: held.Revision})
	commit(t, other, store.Op{Key: "alive/h", Expect: held.Revision}) // an administrator deletes it
	wantConflict(t, s, []string{"alive/h"}, put("addresses/hold/10.0.0.2", `{"owner":"a"}`, 0), store.Op{Key: "alive/h", Verify: true, Expect: held.Revision})
	wantGone(t, s, "addresses/hold/10.0.0.2")
	held.Release() // deletes nothing: it is gone

	// A holder that dies leaves its Lease until the node is another machine, or in another boot.
	if held, err = s.Hold(ctx, "alive/h", []byte(of1), 0); err != nil {
		t.Fatal(err)
	}
	server.NodeBoot("h", "boot2")
	if list, _, err := other.List(t.Context(), "alive/"); err != nil || len(list) != 0 {
		t.Errorf("after another boot, the sessions are %v, %v", list, err)
	}
	next, err := other.Hold(t.Context(), "alive/h", []byte(of2), 0)
	if err != nil {
		t.Fatal(err)
	}
	wantConflict(t, s, []string{"alive/h"}, put("addresses/hold/10.0.0.3", `{"owner":"a"}`, 0), store.Op{Key: "alive/h", Verify: true, Expect: held.Revision})
	held.Release() // deletes nothing: it is another holder's
	if e := read(t, s, "alive/h"); string(e.Value) != of2 {
		t.Errorf("the session is %+v", e)
	}
	next.Release()
	wantGone(t, s, "alive/h")
}

// testFollow follows everything, also while the API server is away.
func testFollow(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	const node, block = "nodes/f1", "blocks/follow/10.0.0.0-26"
	server.Node("f1", []string{"192.0.2.1"})
	first := commit(t, s, put(block, `{"node":"f1","subnet":"10.0.0.0/16"}`, 0))
	r := sourcetest.NewRecorder()
	go func() { _ = source.Follow(t.Context(), s, cluster.Followed(), r) }()
	r.Sees(t, func() bool { return r.Entries[node].Document != nil && r.Entries[block].Document != nil })
	commit(t, s, put(node, `{"id":"1","addresses":["192.0.2.1/24"]}`, 1))
	r.Sees(t, func() bool { return r.Entries[node].Document.(*cluster.Node).ID == "1" })
	server.Label("f1", "disk", "ssd") // changes nothing that the agents use
	commit(t, s, put(node, `{"id":"2","addresses":["192.0.2.1/24"]}`, 1))
	r.Sees(t, func() bool { return r.Entries[node].Document.(*cluster.Node).ID == "2" })
	r.Sees(t, func() bool { return r.Changes[node] == 2 })
	second := commit(t, s, put(block, `{"node":"f1","subnet":"10.0.0.0/16","release":true}`, first))
	r.Sees(t, func() bool {
		return r.Entries[block].Revision == second && r.Entries[block].Document.(*cluster.Block).Release
	})
	server.Stop()
	r.Sees(t, func() bool { return r.IsAway })
	r.Sees(t, func() bool { return r.Entries[node].Document != nil && r.Entries[block].Document != nil }) // what was known stays
	server.Restart()
	r.Sees(t, func() bool { return !r.IsAway })
	commit(t, s, store.Op{Key: block, Expect: second})
	server.Delete("/api/v1/nodes/f1")
	gone := func(key string) bool { e, is := r.Entries[key]; return !is || e.Deleted }
	r.Sees(t, func() bool { return gone(block) && gone(node) })
}

// testSchema checks that the API refuses what agents would refuse.
func testSchema(t *testing.T, server *kubetest.Server) {
	create := func(name, spec string) error {
		return server.Create("/apis/fairlead.io/v1alpha1/networks", `{"apiVersion": "fairlead.io/v1alpha1", "kind": "Network", "metadata": {"name": "`+name+`"}, "spec": `+spec+`}`)
	}
	for spec, want := range map[string]string{
		`{}`:                                     "spec.subnets: Required value",
		`{"subnets": []}`:                        "should have at least 1 items",
		`{"subnets": [{"cidr": "10.0.0.1/16"}]}`: "want a prefix with its first address",
		`{"subnets": [{"cidr": "x"}]}`:           "want a prefix with its first address",
		`{"subnets": [{"cidr": "10.0.0.0/31"}]}`: "too few addresses",
		`{"subnets": [{"cidr": "fd00::/127", "assign": "cluster"}]}`:                                                "too few addresses",
		`{"subnets": [{"cidr": "10.0.0.0/16", "block": 8}]}`:                                                        "block is shorter than the subnet's prefix length",
		`{"subnets": [{"cidr": "10.0.0.0/16", "assign": "x"}]}`:                                                     "spec.subnets[0].assign",
		`{"subnets": [{"cidr": "10.0.0.0/16", "exclude": ["10.0.1.0/24, 10.0.2.0/24"]}]}`:                           "spec.subnets[0].exclude[",
		`{"subnets": [{"cidr": "10.0.0.0/16", "exclude": ["10.0.1.1", "10.0.1.0-z"]}]}`:                             "spec.subnets[0].exclude[",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "peers": ["x"]}`:                                                    "only an isolated network has peers",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "isolated": true, "backends": [{"type": "bgp"}]}`:                   "can only have the backend vxlan",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "isolated": true, "backends": [{"type": "vxlan", "direct": true}]}`: "direct cannot be set",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "mtu": 1400}`:                                                       "nodes do not connect the pods of this network",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "vxlan"}]}`:                                   "nodes do not connect the pods of this network",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "mtu": 100}`:                                                        "spec.mtu",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "udp"}]}`:                                     "spec.backends[0].type",
	} {
		if err := create("schema", spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	if err := create("default", `{"isolated": true, "subnets": [{"cidr": "10.0.0.0/16"}]}`); err == nil || !strings.Contains(err.Error(), "cannot be isolated") {
		t.Errorf("an isolated default network: %v", err)
	}
	if err := create("schema", `{"isolated": true, "peers": ["x"], "subnets": [{"cidr": "10.0.0.0/16", "block": 28, "exclude": ["10.0.0.1", "10.0.1.0/24", "10.0.2.1-10.0.2.9"]}, {"cidr": "fd00::/64", "exclude": ["fd00::1-fd00::9"]}], "backends": [{"type": "vxlan", "port": 4789}]}`); err != nil {
		t.Error(err)
	}
	for _, step := range []struct{ subnets, err string }{
		{`{"cidr": "10.0.0.0/16"}, {"cidr": "fd00::/64"}`, "block and assign of a subnet cannot be changed"},
		{`{"cidr": "10.0.0.0/15"}, {"cidr": "fd00::/64"}`, "block and assign of a subnet cannot be changed"},
		{`{"cidr": "10.0.0.0/24"}, {"cidr": "fd00::/64"}`, "block and assign of a subnet cannot be changed"},
		{`{"cidr": "10.0.0.0/16", "block": 28}, {"cidr": "fd00::/56", "assign": "cluster"}`, "block and assign of a subnet cannot be changed"},
		{`{"cidr": "10.0.0.0/15", "block": 28}, {"cidr": "fd00::/56"}`, ""},
		{`{"cidr": "10.0.0.0/16", "block": 28}, {"cidr": "fd00::/64"}`, ""},
		{`{"cidr": "10.0.0.0/16", "block": 24}, {"cidr": "fd00::/64"}`, "block and assign of a subnet cannot be changed"},
		{`{"cidr": "10.0.0.0/16", "block": 28, "assign": "cluster"}, {"cidr": "fd00::/64"}`, "block and assign of a subnet cannot be changed"},
		{`{"cidr": "10.0.0.0/16", "block": 28}, {"cidr": "fd00::/64", "block": 120}`, "block and assign of a subnet cannot be changed"},
		{`{"cidr": "fd00::/64", "assign": "block", "block": 122}, {"cidr": "10.0.0.0/16", "assign": "", "block": 28}`, ""},
		{`{"cidr": "10.1.0.0/28"}, {"cidr": "fd00::/64", "assign": "block"}`, ""},
		{`{"cidr": "10.1.0.0/28", "block": 28, "exclude": ["10.1.0.1"]}`, ""},
	} {
		err := server.Client().Patch(types.MergePatchType).AbsPath("/apis/fairlead.io/v1alpha1/networks/schema").Body([]byte(`{"spec": {"subnets": [` + step.subnets + `]}}`)).Do(t.Context()).Error()
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("change the subnets to %s: %v, want %q", step.subnets, err, step.err)
		}
	}
	server.Delete("/apis/fairlead.io/v1alpha1/networks/schema")
}

// testSessions checks that of two agents with one node name one writes, and that the other takes over after it.
func testSessions(t *testing.T, server *kubetest.Server) {
	server.Node("twin", nil)
	start := func(machine string) (*session.Session, context.CancelFunc, error) {
		ctx, stop := context.WithCancel(t.Context())
		x := session.New(open(t, server), session.Identity{Node: "twin", Machine: machine, Instance: "1"}, slog.New(slog.DiscardHandler))
		return x, stop, x.Start(ctx)
	}
	write := func(x *session.Session, ip string) error {
		_, err := x.Store().Commit(t.Context(), put("addresses/sessions/"+ip, `{"owner":"a"}`, 0))
		return err
	}
	first, stop, err := start("1")
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := start("2")
	if _, taken := errors.AsType[*session.TakenError](err); !taken {
		t.Errorf("a second machine: %v", err)
	}
	if err := errors.Join(write(first, "10.0.0.1"), write(first, "10.0.0.2")); err != nil {
		t.Error(err)
	}
	if write(second, "10.0.0.3") == nil {
		t.Error("an agent without a session writes")
	}
	stop()
	go second.Run(t.Context())
	kerneltest.Until(t, func() bool { return write(second, "10.0.0.4") == nil })
	if write(first, "10.0.0.5") == nil {
		t.Error("the first agent writes after its session")
	}
	wantGone(t, open(t, server), "addresses/sessions/10.0.0.3", "addresses/sessions/10.0.0.5")

	// An agent that was killed has not deleted its Lease, and the next one of this boot has another instance.
	server.Node("killed", nil)
	server.NodeBoot("killed", "boot")
	agent := func(machine, instance string) error {
		return session.New(open(t, server), session.Identity{Node: "killed", Machine: machine, Instance: instance}, slog.New(slog.DiscardHandler)).Start(t.Context())
	}
	if err := errors.Join(agent("1", "boot old"), agent("2", "boot new")); err != nil {
		t.Errorf("an agent of the same boot: %v", err)
	}
	if err := agent("3", "other new"); err == nil {
		t.Error("an agent of another boot took the session")
	}
}

// testMissing checks the error for a cluster where Fairlead's objects were not applied.
func testMissing(t *testing.T, server *kubetest.Server) {
	server.Node("missing", nil)
	s, err := kube.Open(kube.Options{Config: server.Config, Namespace: "missing"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Hold(t.Context(), "alive/missing", nil, time.Second); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "fairlead kubernetes install") {
		t.Errorf("a namespace that does not exist: %v", err)
	}
}

// testRestore restores the API from an older backup of its etcd while an agent follows it.
func testRestore(t *testing.T, server *kubetest.Server) {
	s := open(t, server)
	const before, after, later = "blocks/restore/10.0.0.0-26", "blocks/restore/10.0.0.64-26", "blocks/restore/10.0.0.128-26"
	commit(t, s, put(before, `{"node":"a","subnet":"10.0.0.0/16"}`, 0))
	server.Stop()
	server.Etcd.Kill()
	restore := server.Etcd.Backup()
	server.Etcd.Restart()
	server.Restart()

	r := sourcetest.NewRecorder()
	go func() { _ = source.Follow(t.Context(), s, cluster.Followed(), r) }()
	has := func(key string) bool { return r.Entries[key].Document != nil }
	r.Sees(t, func() bool { return has(before) })
	for i := range 500 { // so that the restored state stays behind for a while: the API server writes when it starts
		commit(t, s, put(fmt.Sprintf("vnis/%d", 5000+i), "restore", 0))
	}
	commit(t, s, put(after, `{"node":"a","subnet":"10.0.0.0/16"}`, 0))
	r.Sees(t, func() bool { return has(after) })
	r.Sees(t, func() bool { return r.Restores == 0 }) // a restart of the API is no restore
	server.Stop()
	server.Etcd.Kill()
	restore()
	server.Etcd.Restart()
	server.Restart()
	r.Sees(t, func() bool { return has(before) && !has(after) && r.Restores == 1 })
	commit(t, s, put(later, `{"node":"a","subnet":"10.0.0.0/16"}`, 0))
	r.Sees(t, func() bool { return has(later) })
}

// TestShortWatches checks that watches that the API ends at once are not repeated at once.
func TestShortWatches(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{cluster.NetworksPrefix, cluster.NodesPrefix} {
		url, watches := kubetest.EndWatches(t)
		s, err := kube.Open(kube.Options{Config: &rest.Config{Host: url}, Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := s.Watch(ctx, prefix, 1, func(store.Batch) error { return nil }); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > kerneltest.Slow(1500*time.Millisecond) {
			t.Errorf("%s: %v after %v", prefix, err, time.Since(began))
		}
		if n := watches.Load(); n != 1 {
			t.Errorf("%s: %d watches in the first second, want 1", prefix, n)
		}
	}
}

// TestErrorText checks that errors have the API server's own words, such as those of an admission policy.
func TestErrorText(t *testing.T) {
	t.Parallel()
	const text = "ValidatingAdmissionPolicy 'mine' denied request: not on Fridays"
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": %q}`, text)
	})
	_, getErr := s.Get(t.Context(), cluster.NetworkKey("default"))
	_, _, listErr := s.List(t.Context(), cluster.NetworksPrefix)
	_, commitErr := s.Commit(t.Context(), store.Op{Key: cluster.NetworkKey("default"), Value: []byte(`{"subnets": [{"cidr": "10.0.0.0/16"}]}`)})
	for what, err := range map[string]error{"get": getErr, "list": listErr, "commit": commitErr} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestChangedNode checks that an agent reports a Node whose annotation an admission webhook removed or changed.
func TestChangedNode(t *testing.T) {
	t.Parallel()
	const mine = `{"id":"x","addresses":[]}`
	for _, stored := range []string{mine, "", `{"id":"y"}`} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": "7", "annotations": map[string]string{"fairlead.io/node": stored}}})
		})
		_, err := s.Commit(t.Context(), put(cluster.NodeKey("a"), mine, 0))
		if stored == mine && err != nil || stored != mine && (err == nil || !strings.Contains(err.Error(), "look for an admission webhook")) {
			t.Errorf("stored %q: %v", stored, err)
		}
	}
}

// TestTakenNames checks that an object whose content does not match its name is an invalid entry of the name's key.
// No agent could create its own object, so without the entry agents would try for ever.
func TestTakenNames(t *testing.T) {
	t.Parallel()
	const group = "/apis/fairlead.io/v1alpha1/"
	spec := map[string]string{
		"ipaddresses/default.10.245.0.77":                              `{"network": "default", "ip": "10.245.0.78", "owner": "a/b"}`,
		"ipaddresses/a.b.fd00-0000-0000-0000-0000-0000-0000-0005":      `{"network": "default", "ip": "fd00::5", "owner": "a/b"}`,
		"ipaddresses/mine":                                             `{"network": "default", "ip": "10.245.0.78", "owner": "a/b"}`,
		"ipaddresses/default.fd00--5":                                  `{"network": "default", "ip": "fd00::5", "owner": "a/b"}`,
		"ipblocks/default.10.244.0.0-26":                               `{"network": "default", "cidr": "10.244.0.64/26", "node": "n", "subnet": "10.244.0.0/16"}`,
		"ipblocks/default.fd00-0000-0000-0000-0000-0000-0000-0000-122": `{"network": "x", "cidr": "fd00::/122", "node": "n", "subnet": "fd00::/64"}`,
		"ipblocks/default.10.244.0.128-26":                             `{"network": "default", "cidr": "10.244.0.128/26", "node": "n", "subnet": "10.244.0.0/16"}`,
		"ipblocks/10.244.0.0-26":                                       `{"network": "default", "cidr": "10.244.0.0/26", "node": "n", "subnet": "10.244.0.0/16"}`,
		"ipblocks/default.10.244.0.1-26":                               `{"network": "default", "cidr": "10.244.0.0/26", "node": "n", "subnet": "10.244.0.0/16"}`,
	}
	object := func(path string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q, "resourceVersion": "7"}, "spec": %s}`, filepath.Base(path), spec[path])
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		path := strings.TrimPrefix(r.URL.Path, group)
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists", "code": 409}`)
		case spec[path] != "":
			fmt.Fprint(w, object(path))
		default:
			var items []string
			for _, name := range slices.Sorted(maps.Keys(spec)) {
				if strings.HasPrefix(name, path+"/") {
					items = append(items, object(name))
				}
			}
			fmt.Fprintf(w, `{"metadata": {"resourceVersion": "8"}, "items": [%s]}`, strings.Join(items, ", "))
		}
	})
	got := map[string]bool{} // whether the entry is valid
	for _, prefix := range []string{cluster.AddressesPrefix, cluster.BlocksPrefix} {
		list, _, err := s.List(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			_, err := cluster.Decode(e.Key, e.Value)
			got[e.Key] = err == nil
			if err != nil && !strings.Contains(err.Error(), "its name") {
				t.Error(err)
			}
		}
	}
	want := map[string]bool{
		"addresses/default/10.245.0.77": false, "addresses/a.b/fd00::5": false,
		"blocks/default/10.244.0.0-26": false, "blocks/default/fd00::-122": false, "blocks/default/10.244.0.128-26": true,
	}
	if !maps.Equal(got, want) {
		t.Errorf("entries %v, want %v", got, want)
	}
	key := "addresses/default/10.245.0.77"
	if e, err := s.Get(t.Context(), key); err != nil || e.Revision != 7 {
		t.Errorf("%+v, %v", e, err)
	}
	wantConflict(t, s, []string{key}, put(key, `{"owner":"b"}`, 0))
}

// TestRevisionOfEachChange checks that Commit reports the revision of each change, and the largest one.
func TestRevisionOfEachChange(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, ".2") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		revision := map[string]string{http.MethodGet: "5", http.MethodDelete: "100", http.MethodPost: "150"}[r.Method]
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"metadata": {"name": "default.10.0.0.1", "resourceVersion": %q}, "spec": {"network": "default", "ip": "10.0.0.1", "owner": "a"}}`, revision)
	})
	ops := []store.Op{{Key: "addresses/default/10.0.0.1", Expect: 5, At: new(int64)}, put("addresses/default/10.0.0.2", `{"owner":"b"}`, 0)}
	ops[1].At = new(int64)
	revision := commit(t, s, ops...)
	if deleted, created := *ops[0].At, *ops[1].At; revision != 150 || deleted <= 5 || deleted > 100 || created != 150 {
		t.Errorf("committed at %d: deleted at %d, created at %d", revision, deleted, created)
	}
}

// TestAddressNames checks that an address of any whereabouts network has an object with a valid name, and is read back.
func TestAddressNames(t *testing.T) {
	t.Parallel()
	const group = "/apis/fairlead.io/v1alpha1/ipaddresses"
	names := map[string]bool{}
	for _, network := range append(whereaboutsNetworks(), "whereabouts-10.0.0.0-24", "whereabouts-fd00-..64") {
		name, stored := "", []byte(nil)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Method == http.MethodPost:
				var o struct {
					Metadata map[string]any `json:"metadata"`
					Spec     map[string]any `json:"spec"`
				}
				if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Spec["network"] != network {
					t.Errorf("%s: created %+v, %v", network, o, err)
				}
				name, o.Metadata["resourceVersion"] = fmt.Sprint(o.Metadata["name"]), "7"
				stored, _ = json.Marshal(o)
				_, _ = w.Write(stored)
			case r.URL.Path == group:
				fmt.Fprintf(w, `{"metadata": {"resourceVersion": "8"}, "items": [%s]}`, stored)
			case name != "" && r.URL.Path == group+"/"+name:
				_, _ = w.Write(stored)
			default:
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
			}
		})
		key := cluster.AddressKey(network, netip.MustParseAddr("fd00::1"))
		commit(t, s, put(key, `{"owner":"a"}`, 0))
		if invalid := validation.IsDNS1123Subdomain(name); invalid != nil || names[name] {
			t.Errorf("%s: the object's name %q is invalid (%v), or the one of another network", network, name, invalid)
		}
		names[name] = true
		read(t, s, key)
		if list, _, err := s.List(t.Context(), cluster.AddressesPrefix); err != nil || len(list) != 1 || list[0].Key != key {
			t.Errorf("the list has %+v, %v, want %s", list, err, key)
		}
	}
}

// TestAgentsOfTwoVersions checks that agents that report different texts about a Network do not overwrite each other's
// report for ever. Each reports once for each generation of the Network.
func TestAgentsOfTwoVersions(t *testing.T) {
	t.Parallel()
	generation, revision, writes, status := 1, 1, 0, json.RawMessage("{}")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPatch {
			var o map[string]json.RawMessage
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				t.Error(err)
			}
			status, revision, writes = o["status"], revision+1, writes+1
		}
		object := fmt.Sprintf(`{"metadata": {"name": "default", "resourceVersion": "%d", "generation": %d}, "spec": {}, "status": %s}`, revision, generation, status)
		if r.Method == http.MethodGet {
			object = fmt.Sprintf(`{"metadata": {"resourceVersion": "%d"}, "items": [%s]}`, revision, object)
		}
		fmt.Fprint(w, object)
	}))
	defer api.Close()
	agents := map[string]*kube.Store{"": nil, "want a subnet": nil}
	for problem := range agents {
		s, err := kube.Open(kube.Options{Config: &rest.Config{Host: api.URL}, Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		agents[problem] = s
	}
	report := func(what string, want int) {
		t.Helper()
		for range 5 {
			for problem, s := range agents {
				_, _, err := s.List(t.Context(), cluster.NetworksPrefix) // as after each change
				if err = errors.Join(err, s.SetNetworkReady(t.Context(), "default", problem)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if writes != want {
			t.Errorf("%s: %d writes, want %d", what, writes, want)
		}
		writes = 0
	}
	report("a Network", 2)
	report("the same Network", 0)
	generation++
	report("a changed Network", 2)
	status = json.RawMessage("{}")
	report("a Network that was created again", 1)
}

// TestLongProblemIsWrittenOnce cuts a message inside a character. The API stores the message, and it is not written again.
func TestLongProblemIsWrittenOnce(t *testing.T) {
	t.Parallel()
	stored, patches := []byte(`{"metadata": {"name": "default", "resourceVersion": "7"}}`), 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPatch {
			patches++
			var o map[string]any
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				t.Error(err)
			}
			o["metadata"] = map[string]any{"name": "default", "resourceVersion": "8"}
			stored, _ = json.Marshal(o)
		}
		_, _ = w.Write(stored)
	})
	for range 3 {
		if err := s.SetNetworkReady(t.Context(), "default", "x"+strings.Repeat("é", 1000)+"\xff"); err != nil {
			t.Fatal(err)
		}
	}
	if patches != 1 || strings.Contains(string(stored), "\ufffd") {
		t.Errorf("%d writes, want 1, of %s", patches, stored)
	}
}
