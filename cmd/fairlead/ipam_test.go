package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/ipam"
)

// ipamHost is a host with a store in a file and a node's state.
type ipamHost struct {
	t   *testing.T
	dir string
	s   store.Store
}

func newIPAMHost(t *testing.T) *ipamHost {
	h := &ipamHost{t: t, dir: t.TempDir()}
	var err error
	h.s, err = store.File(filepath.Join(h.dir, "fairlead", "store"))
	must(t, err)
	t.Cleanup(func() { _ = h.s.Close() })
	storetest.Put(t, h.s, "networks/default", `{"subnets": [{"cidr": "10.244.0.0/24", "block": 28}, {"name": "fixed", "cidr": "10.250.0.0/28", "assign": "cluster"}]}`)
	storetest.Put(t, h.s, "nodes/here", "{}")
	h.block("10.244.0.16/28", "here")
	must(t, h.local().Write(&local.Network{Name: "default", Node: "here", Subnets: []local.Subnet{
		{CIDR: netip.MustParsePrefix("10.244.0.0/24"), Blocks: []netip.Prefix{netip.MustParsePrefix("10.244.0.16/28")}},
		{Name: "fixed", CIDR: netip.MustParsePrefix("10.250.0.0/28"), Assign: cluster.AssignCluster},
	}}))
	return h
}

func (h *ipamHost) local() local.Dir { return local.Open(h.dir, filepath.Join(h.dir, "run")) }

func (h *ipamHost) block(cidr, node string) {
	storetest.Put(h.t, h.s, cluster.BlockKey("default", netip.MustParsePrefix(cidr)), `{"node": "`+node+`", "subnet": "10.244.0.0/24"}`)
}

func (h *ipamHost) hold(ip, container string) {
	h.t.Helper()
	s, err := ipam.Open(storetest.Context(h.t), h.local().Addresses(), "default", ipam.Options{})
	must(h.t, err)
	defer s.Close()
	a := netip.MustParseAddr(ip)
	_, err = s.Allocate(ipam.Owner{ContainerID: container, IfName: "eth0"}, []ipam.RangeSet{{{Subnet: netip.PrefixFrom(a, 24).Masked(), Start: a, End: a}}}, nil)
	must(h.t, err)
}

func (h *ipamHost) run(args ...string) (code int, out, errs string) {
	return h.fairlead(append([]string{"ipam"}, args...)...)
}

// fairlead runs a command.
func (h *ipamHost) fairlead(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, getenv: func(k string) string {
		return map[string]string{"FAIRLEAD_LIB": h.dir, "FAIRLEAD_RUN": filepath.Join(h.dir, "run"), "FAIRLEAD_AGENT_NODE": "here"}[k]
	}}
	code = run(context.Background(), a, append([]string{"fairlead"}, args...))
	return code, stdout.String(), stderr.String()
}

func (h *ipamHost) want(code int, words string, args ...string) {
	h.t.Helper()
	got, out, errs := h.run(args...)
	if got != code || !strings.Contains(out+errs, words) {
		h.t.Errorf("ipam %s: exit code %d, want %d with %q:\n%s%s", strings.Join(args, " "), got, code, words, out, errs)
	}
}

func TestIPAMShow(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	h.hold("10.244.0.18", "c1")
	h.block("10.244.0.32/28", "there")
	storetest.Put(t, h.s, "nodes/there", "{}")
	storetest.Put(t, h.s, "endpoints/there/c2/eth0", `{"network": "default", "ips": ["10.244.0.40"]}`)
	storetest.Put(t, h.s, "addresses/default/10.250.0.3", `{"owner": "ns/db-0", "fixed": true}`)
	must(t, h.local().AppendReleases(context.Background(), local.Release{Network: "default", Container: "c9", IfName: "eth0"}))
	code, out, errs := h.run("show")
	want := `NETWORK  SUBNET         POOL   ASSIGNED    BLOCKS
default  10.244.0.0/24  -      in blocks   2 of 16
default  10.250.0.0/28  fixed  one by one  -

NETWORK  BLOCK           NODE   USED     STATE
default  10.244.0.16/28  here   1 of 13  here
default  10.244.0.32/28  there  1 of 13  -

NETWORK  ADDRESS     OWNER    FIXED  NODE
default  10.250.0.3  ns/db-0  yes    -

1 releases wait for the agent.
`
	if code != 0 || out != want {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	h.want(0, `"pendingReleases": 1`, "show", "default", "--json")
	h.want(1, "there is no network blue; there are: default", "show", "blue")
}

// Check names each difference.
func TestIPAMCheck(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	h.want(0, "agree", "check")
	h.want(0, "[]", "check", "--json")
	h.hold("10.244.0.18", "c1")
	h.hold("10.9.0.3", "c2")
	h.hold("10.250.0.4", "c3")
	h.block("10.244.0.48/28", "here")
	h.block("10.244.0.64/28", "gone")
	h.block("10.244.0.64/27", "here")
	h.block("10.7.0.0/28", "here")
	storetest.Put(t, h.s, "addresses/default/10.250.0.4", `{"owner": "ns/x", "node": "other", "container": "c7"}`)
	storetest.Put(t, h.s, "addresses/default/10.250.0.5", `{"owner": "ns/y", "node": "here", "container": "c8"}`)
	storetest.Put(t, h.s, "nodes/bad", `{`)
	h.block("10.244.0.96/28", "starting")
	storetest.Put(t, h.s, "alive/starting", `{}`)
	code, out, errs := h.run("check")
	if strings.Contains(out, "node starting, which was removed") {
		t.Errorf("a node whose agent has just started counts as removed:\n%s", out)
	}
	for _, words := range []string{
		"address 10.244.0.18 of network default: container c1 eth0 holds it but has no attachment",
		"address 10.9.0.3 of network default: container c2 eth0 holds it, but it is free in the store",
		`address 10.250.0.4 of network default: container c3 eth0 holds it, but the store assigns it to ns/x on node "other"`,
		"address 10.250.0.4 of network default: it is on node other, which was removed",
		"address 10.250.0.5 of network default: the store assigns it to container c8 on this node",
		"block 10.244.0.48/28 of network default: the store assigns it to this node, but this node's file lacks it",
		"block 10.244.0.64/28 of network default: it belongs to node gone, which was removed\n    it becomes free after the grace period, or now: fairlead ipam release --node gone",
		"overlaps with 10.244.0.64/",
		"block 10.7.0.0/28 of network default: it is in no subnet",
		"key nodes/bad: read nodes/bad",
	} {
		if !strings.Contains(out, words) {
			t.Errorf("nothing of %q", words)
		}
	}
	if code != exitWrong {
		t.Errorf("exit code %d: %s", code, errs)
	}
	h.block("10.244.0.16/28", "other")
	h.want(exitWrong, "this node's file has it, but the store assigns it to node other", "check")
}

// A release frees blocks and addresses that nobody uses. With --dry-run it changes nothing.
func TestIPAMRelease(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	h.block("10.244.0.32/28", "gone")
	h.block("10.244.0.48/28", "gone")
	storetest.Put(t, h.s, "addresses/default/10.250.0.4", `{"owner": "ns/x", "fixed": true}`)
	storetest.Put(t, h.s, "addresses/default/10.250.0.5", `{"owner": "ns/y", "node": "here", "container": "c8"}`)
	storetest.Put(t, h.s, "addresses/default/10.250.0.6", `{"owner": "ns/z", "node": "gone", "container": "c9"}`)
	h.want(0, "would release 10.244.0.32/28 of node gone\n", "release", "10.244.0.32/28", "--dry-run")
	storetest.Put(t, h.s, "blocks/blue/10.0.0.0-26", `{"node": "here", "subnet": "10.0.0.0/16"}`)
	h.want(1, "block 10.0.0.0/26 belongs to network blue, not to default\nType: fairlead ipam release 10.0.0.0/26 --network blue\n", "release", "10.0.0.0/26")
	h.want(0, "would release 10.0.0.0/26 of node here\n", "release", "10.0.0.0/26", "--network", "blue", "--dry-run")
	h.want(0, "released 10.244.0.32/28", "release", "10.244.0.32/28", "--yes") // the old flag has no effect
	h.want(1, "no node has block 10.244.0.32/28", "release", "10.244.0.32/28")
	h.want(0, "would release 10.250.0.4 of ns/x\n", "release", "10.250.0.4", "--dry-run")
	h.want(1, "in container c8 on node here: stop that container first", "release", "10.250.0.5")
	h.want(0, "released 10.250.0.4 of ns/x\n", "release", "10.250.0.4")
	h.want(1, "the cluster did not assign address 10.250.0.4", "release", "10.250.0.4")
	storetest.Put(t, h.s, "addresses/whereabouts/10.251.0.4", `{"owner": "ns/w", "node": "gone", "container": "c9"}`)
	h.want(1, "address 10.251.0.4 belongs to network whereabouts, not to default\nType: fairlead ipam release 10.251.0.4 --network whereabouts\n", "release", "10.251.0.4")
	h.want(0, "released 10.251.0.4 of ns/w\n", "release", "10.251.0.4", "--network", "whereabouts")
	h.want(1, "in container c8 on node here: stop that container first", "release", "10.250.0.5")
	h.want(1, "there is no network nope; there are: ", "release", "10.244.0.32/28", "--network", "nope")
	h.want(1, "the cluster did not assign address 10.250.0.4 of network nope\nType: fairlead ipam show\n", "release", "10.250.0.4", "--network", "nope")
	h.want(1, "remove it first", "release", "--node", "here")
	h.want(1, "remove it first", "release", "--node", "here")
	h.want(1, "there is no removed node nope; there are: gone\n", "release", "--node", "nope")
	h.want(0, "would release 2 blocks and addresses of node gone\n", "release", "--node", "gone", "--dry-run")
	h.want(0, "released 2 blocks and addresses of node gone\n", "release", "--node", "gone")
	h.want(1, "there is no removed node nope; there are none\n", "release", "--node", "nope")
	h.want(2, "is neither a block nor an address", "release", "nonsense")
	h.want(2, "usage", "release")
	list, _, err := h.s.List(context.Background(), cluster.BlocksPrefix)
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

// The node of a block frees it when no container uses an address of it.
func TestIPAMReleaseOfLivingNode(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	h.block("10.244.0.32/28", "here")
	h.hold("10.244.0.18", "c1")
	m := address.NewManager(address.Options{Store: h.s, Node: "here", Dir: h.local()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = source.Follow(ctx, h.s, cluster.Followed(), m); done <- struct{}{} }()
	go func() { _ = m.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-done; <-done })
	h.want(0, "released 10.244.0.32/28", "release", "10.244.0.32/28")
	h.want(0, "10.244.0.16/28 will be free when no container on node here uses an address of it", "release", "10.244.0.16/28")
	h.want(0, "leaving", "show")
	n, err := h.local().Read("default")
	must(t, err)
	for _, b := range n.Subnets[0].Blocks {
		if b.String() == "10.244.0.16/28" {
			t.Error("its addresses are still assigned")
		}
	}
}

// TestNodeShowJSON verifies that the JSON form of a node says which addresses and containers it has.
func TestNodeShowJSON(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	storetest.Put(t, h.s, "addresses/default/10.250.0.3", `{"owner": "ns/db-0", "fixed": true, "node": "here", "container": "c1", "ifName": "eth0"}`)
	storetest.Put(t, h.s, "endpoints/here/c1/eth0", `{"network": "default", "ips": ["10.250.0.3"], "pod": "ns/db-0"}`)
	storetest.Put(t, h.s, "endpoints/here/c2/net1", `{"network": "blue", "ips": null}`)
	code, out, errs := h.fairlead("node", "show", "here", "-o", "json")
	var got struct{ Addresses, Endpoints json.RawMessage }
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	for _, c := range []struct {
		have json.RawMessage
		want string
	}{
		{got.Addresses, `[{"network":"default","address":"10.250.0.3","owner":"ns/db-0","fixed":true,"node":"here","container":"c1","ifName":"eth0"}]`},
		{got.Endpoints, `[{"container":"c1","ifName":"eth0","ips":["10.250.0.3"],"network":"default","pod":"ns/db-0"},{"container":"c2","ifName":"net1","ips":[],"network":"blue"}]`},
	} {
		var text bytes.Buffer
		if err := json.Compact(&text, c.have); err != nil || text.String() != c.want {
			t.Errorf("got %s (%v), want %s", text.String(), err, c.want)
		}
	}
}

// TestReleasableLeavesOutPodCIDRs checks that the completion of ipam release offers no block that Kubernetes assigned.
func TestReleasableLeavesOutPodCIDRs(t *testing.T) {
	t.Parallel()
	s := cluster.NewSnapshot()
	s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}, {"cidr": "10.245.0.0/16"}]}`))
	s.Set("nodes/n1", []byte(`{"podCIDRs": ["10.244.1.0/24"]}`))
	s.Set("blocks/default/10.245.0.0-26", []byte(`{"node": "n1", "subnet": "10.245.0.0/16"}`))
	if got := strings.Join(releasable(s), " "); got != "10.245.0.0/26" {
		t.Errorf("got %s", got)
	}
}
