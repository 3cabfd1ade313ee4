package admin

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
)

// TestReleaseAddressShortensItsPodsList releases both fixed addresses of a pod. Then nothing of the pod is left.
func TestReleaseAddressShortensItsPodsList(t *testing.T) {
	t.Parallel()
	const slot = "fixed/default/ns/p/eth0"
	s := newStore(t, map[string]string{
		"networks/default":           `{"subnets": [{"cidr": "10.1.0.0/24", "assign": "cluster"}]}`,
		"addresses/default/10.1.0.5": `{"owner": "ns/p", "fixed": true, "ifName": "eth0"}`,
		"addresses/default/10.1.0.6": `{"owner": "ns/p", "fixed": true, "ifName": "eth0"}`,
		slot:                         `{"ips": ["10.1.0.5", "10.1.0.6"]}`,
	})
	for _, step := range []struct{ ip, left string }{{"10.1.0.5", `{"ips":["10.1.0.6"]}`}, {"10.1.0.6", ""}} {
		if _, err := ReleaseAddress(t.Context(), s, "default", netip.MustParseAddr(step.ip), false); err != nil {
			t.Fatal(err)
		}
		e, err := s.Get(t.Context(), slot)
		if string(e.Value) != step.left || (err == nil) != (step.left != "") {
			t.Errorf("after the release of %s the pod has %s, %v, want %q", step.ip, e.Value, err, step.left)
		}
	}
	if left := keys(t, s, "addresses/"); left != "" {
		t.Errorf("addresses: %s", left)
	}
}

// TestReleaseNodeWithoutBlocks releases the addresses of a removed node that has no block.
func TestReleaseNodeWithoutBlocks(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{
		"networks/default":           `{"subnets": [{"cidr": "10.1.0.0/24", "assign": "cluster"}]}`,
		"addresses/default/10.1.0.5": `{"owner": "ns/p", "node": "gone", "container": "c"}`,
		"addresses/default/10.1.0.6": `{"owner": "ns/p", "fixed": true}`,
	})
	snap, _, err := Snapshot(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := DescribeNode(snap, "gone"); err != nil || len(d.Addresses) != 1 {
		t.Errorf("the node is %+v, %v", d, err)
	}
	for _, dry := range []bool{true, false} {
		if n, err := ReleaseNode(t.Context(), s, "gone", dry); n != 1 || err != nil {
			t.Errorf("released %d, %v (dry: %v)", n, err, dry)
		}
	}
	if left := keys(t, s, "addresses/"); strings.Contains(left, "10.1.0.5") || !strings.Contains(left, "10.1.0.6") {
		t.Errorf("addresses: %s", left)
	}
}

// TestReleaseNodeWithInvalidDocument checks that a node whose document is invalid is no removed node, with --dry-run
// too.
func TestReleaseNodeWithInvalidDocument(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.1.0.0/24"}]}`, "nodes/a": "{", "blocks/default/10.1.0.0-26": `{"node": "a", "subnet": "10.1.0.0/24"}`,
	})
	for _, dry := range []bool{true, false} {
		if _, err := ReleaseNode(t.Context(), s, "a", dry); err == nil || !strings.Contains(err.Error(), "node a is in the cluster: remove it first") {
			t.Errorf("dry %v: %v", dry, err)
		}
	}
}

// TestReleaseInvalidBlock checks that a block with an invalid document is not said to have no node.
func TestReleaseInvalidBlock(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{"networks/default": `{"subnets": [{"cidr": "10.1.0.0/26"}]}`, "blocks/default/10.1.0.0-26": "null"})
	for _, dry := range []bool{true, false} {
		if _, _, err := ReleaseBlock(t.Context(), s, "default", netip.MustParsePrefix("10.1.0.0/26"), dry); err == nil || !strings.Contains(err.Error(), "read blocks/default/10.1.0.0-26: it is null: ") {
			t.Errorf("dry %v: %v", dry, err)
		}
	}
}

// TestReleasePodCIDR checks that the podCIDR of a Node is not released, with --dry-run too: Kubernetes assigns it.
func TestReleasePodCIDR(t *testing.T) {
	t.Parallel()
	s := newStore(t, map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}]}`, "nodes/n1": `{"podCIDRs": ["10.244.1.0/24"]}`,
	})
	for _, dry := range []bool{true, false} {
		_, _, err := ReleaseBlock(t.Context(), s, "default", netip.MustParsePrefix("10.244.1.0/24"), dry)
		if err == nil || !strings.Contains(err.Error(), "it is the podCIDR of Node n1, which Kubernetes assigns") {
			t.Errorf("dry %v: %v", dry, err)
		}
	}
}

// followed is a store that runs a function after each commit.
type followed struct {
	store.Store
	after func()
}

func (f *followed) Commit(ctx context.Context, ops ...store.Op) (int64, error) {
	revision, err := f.Store.Commit(ctx, ops...)
	f.after()
	return revision, err
}

// TestReleaseBlockThatAnotherNodeTakes releases a block that another node claims as soon as it is free.
func TestReleaseBlockThatAnotherNodeTakes(t *testing.T) {
	t.Parallel()
	const key = "blocks/default/10.1.0.0-26"
	s := newStore(t, map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.1.0.0/26"}]}`, "nodes/a": "{}", "nodes/b": "{}",
		key: `{"node": "a", "subnet": "10.1.0.0/26"}`,
	})
	i := &followed{s, func() {
		e, err := s.Get(t.Context(), key)
		if err != nil {
			t.Error(err)
		}
		for _, op := range []store.Op{{Key: key, Expect: e.Revision}, {Key: key, Value: []byte(`{"node": "b", "subnet": "10.1.0.0/26"}`)}} {
			if _, err := s.Commit(t.Context(), op); err != nil {
				t.Error(err)
			}
		}
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if node, free, err := ReleaseBlock(ctx, i, "default", netip.MustParsePrefix("10.1.0.0/26"), false); node != "a" || !free || err != nil {
		t.Errorf("released: %v, from node %s, %v", free, node, err)
	}
}
