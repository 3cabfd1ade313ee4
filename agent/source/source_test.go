package source_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// recorder remembers the last entry of each key.
type recorder struct {
	mu      sync.Mutex
	resets  int
	entries map[string]source.Entry
}

func (r *recorder) Reset(list []source.Entry, _ int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets++
	r.entries = map[string]source.Entry{}
	for _, e := range list {
		r.entries[e.Key] = e
	}
}

func (r *recorder) Change(b source.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range b.Entries {
		r.entries[e.Key] = e
	}
}

func (*recorder) Away(error) {}
func (*recorder) Back()      {}

func (r *recorder) entry(key string) source.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries[key]
}

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
	one, two := &recorder{}, &recorder{}
	go func() { done <- source.Follow(ctx, s, cluster.Followed(), one, two) }()
	kerneltest.Until(t, func() bool { return two.entry("nodes/a").Document != nil })
	put("networks/default", `{"subnets": 1}`, 0)
	second := put("nodes/a", `{"id": "2"}`, first)
	kerneltest.Until(t, func() bool {
		return two.entry("nodes/a").Revision == second && two.entry("networks/default").Problem != nil
	})
	n, ok := one.entry("nodes/a").Document.(*cluster.Node)
	if !ok || n.Name != "a" || n.ID != "2" || n != two.entry("nodes/a").Document {
		t.Errorf("node a is %+v, and %+v for the second follower", n, two.entry("nodes/a").Document)
	}
	if e := one.entry("networks/default"); e.Document != nil || e.Deleted {
		t.Errorf("an invalid network: %+v", e)
	}
	third := put("nodes/a", "", second)
	kerneltest.Until(t, func() bool { return two.entry("nodes/a").Deleted })
	if e := one.entry("nodes/a"); e.Document != nil || e.Problem != nil || e.Revision != third {
		t.Errorf("a deleted node: %+v, want revision %d", e, third)
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of Follow: %v", err)
	}
	if one.resets != 1 {
		t.Errorf("%d resets, want 1", one.resets)
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
