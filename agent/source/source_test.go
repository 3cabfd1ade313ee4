package source_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/source/sourcetest"
	"github.com/fairlead/fairlead/agent/store"
)

// TestFollow follows a store with two followers. Both receive the same documents, first of the list, then of changes.
func TestFollow(t *testing.T) {
	t.Parallel()
	s, err := store.File(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	put := func(key, value string, expect int64) int64 {
		t.Helper()
		op := store.Op{Key: key, Expect: expect}
		if value != "" {
			op.Value = []byte(value)
		}
		revision, err := s.Commit(t.Context(), op)
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	first := put("nodes/a", `{"id": "1"}`, 0)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	one, two := sourcetest.NewRecorder(), sourcetest.NewRecorder()
	go func() { done <- source.Follow(ctx, s, cluster.Followed(), one, two) }()
	two.Sees(t, func() bool { return two.Entries["nodes/a"].Document != nil })
	put("networks/default", `{"subnets": 1}`, 0)
	second := put("nodes/a", `{"id": "2"}`, first)
	two.Sees(t, func() bool {
		return two.Entries["nodes/a"].Revision == second && two.Entries["networks/default"].Problem != nil
	})
	n, ok := one.Entries["nodes/a"].Document.(*cluster.Node)
	if !ok || n.Name != "a" || n.ID != "2" || n != two.Entries["nodes/a"].Document {
		t.Errorf("node a is %+v, and %+v for the second follower", n, two.Entries["nodes/a"].Document)
	}
	if e := one.Entries["networks/default"]; e.Document != nil || e.Deleted {
		t.Errorf("an invalid network: %+v", e)
	}
	third := put("nodes/a", "", second)
	two.Sees(t, func() bool { return two.Entries["nodes/a"].Deleted })
	if e := one.Entries["nodes/a"]; e.Document != nil || e.Problem != nil || e.Revision != third {
		t.Errorf("a deleted node: %+v, want revision %d", e, third)
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of Follow: %v", err)
	}
	if one.Resets != 1 {
		t.Errorf("%d resets, want 1", one.Resets)
	}
}

// TestDecodeEncode checks that each type of document survives the store, and which keys have no type.
func TestDecodeEncode(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"networks/default":            `{"subnets":[{"cidr":"10.0.0.0/16"}],"nat":true}`,
		"nodes/a":                     `{"id":"1","addresses":["192.0.2.1/24"]}`,
		"blocks/default/10.0.1.0-26":  `{"node":"a","subnet":"10.0.0.0/16","release":true}`,
		"addresses/default/10.0.9.9":  `{"owner":"ns/p","fixed":true}`,
		"endpoints/a/c/eth0":          `{"network":"default","ips":["10.0.1.2"]}`,
		"flannel/config":              `{"Network": "10.5.0.0/16"}`,
		"flannel/subnets/10.5.1.0-24": `{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"host-gw"}`,
	} {
		e := source.Decode(store.Entry{Key: key, Value: []byte(value), Revision: 7})
		if e.Problem != nil || e.Document == nil || e.Document.Key() != key || e.Revision != 7 {
			t.Errorf("%s: %+v", key, e)
			continue
		}
		if got, err := cluster.Encode(e.Document); err != nil || string(got) != value {
			t.Errorf("%s: %s (%v), want %s", key, got, err, value)
		}
	}
	for _, key := range []string{"policies/p", "vnis/7", "x", "", "flannel/other"} {
		if e := source.Decode(store.Entry{Key: key, Value: []byte("{"), Revision: 7}); e.Document != nil || e.Problem != nil {
			t.Errorf("%q: %+v, want a key without a type", key, e)
		}
	}
}
