package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// restoreMirror is a mirror that counts calls of Restored.
type restoreMirror struct {
	storetest.Mirror
	count atomic.Int32
}

func (r *restoreMirror) Restored() { r.count.Add(1) }

// follow keeps a mirror of a store up to date during the test.
func follow(t *testing.T, s store.Store) *restoreMirror {
	m := &restoreMirror{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = store.FollowAll(ctx, s, []string{"a/", "b/"}, m); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

// TestEtcdRestored checks that a restored etcd is detected, also by a watch that gets no events, and that everything is
// listed again.
func TestEtcdRestored(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{true, false} {
		t.Run(fmt.Sprintf("busy %v", busy), func(t *testing.T) {
			t.Parallel()
			c := etcdtest.Start(t, etcdtest.Options{})
			s, e := c.Store(t), c.Members[0]
			storetest.Put(t, s, "a/kept", "1")
			e.Kill()
			restore := e.Backup()
			e.Restart()
			e.Wait()
			m := follow(t, s)
			for i := range 20 {
				storetest.Put(t, s, fmt.Sprint("b/lost", i), "1")
			}
			storetest.Put(t, s, "a/kept", "2")
			kerneltest.Until(t, func() bool { return len(m.Keys()) == 21 })
			e.Kill()
			restore()
			e.Restart()
			e.Wait()
			want := map[string]string{"a/kept": "1"}
			if busy { // other calls push the revision past the old one
				for i := range 40 {
					want[fmt.Sprint("a/new", i)] = "1"
					storetest.Put(t, s, fmt.Sprint("a/new", i), "1")
				}
			}
			kerneltest.Until(t, func() bool { return maps.Equal(m.Keys(), want) })
			if m.count.Load() == 0 {
				t.Error("the restore was not detected")
			}
			storetest.Put(t, s, "b/after", "1")
			want["b/after"] = "1"
			kerneltest.Until(t, func() bool { return maps.Equal(m.Keys(), want) })
		})
	}
}

// TestFileRestored checks that a store file that was replaced by an older backup is detected, also once its revision
// exceeds the former one, and that everything is listed again.
func TestFileRestored(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{true, false} {
		t.Run(fmt.Sprintf("busy %v", busy), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "store")
			s := openFile(t, path)
			storetest.Put(t, s, "a/kept", "1")
			backup, err := os.ReadFile(path)
			must(t, err)
			m := follow(t, s)
			for i := range 20 {
				storetest.Put(t, s, fmt.Sprint("b/lost", i), "1")
			}
			storetest.Put(t, s, "a/kept", "2")
			kerneltest.Until(t, func() bool { return len(m.Keys()) == 21 })
			want := map[string]string{"a/kept": "1"}
			must(t, os.WriteFile(path+".backup", backup, 0o600))
			if busy { // its revision exceeds the old one before the follower sees it
				other := openFile(t, path+".backup")
				for i := range 40 {
					want[fmt.Sprint("a/new", i)] = "1"
					storetest.Put(t, other, fmt.Sprint("a/new", i), "1")
				}
				must(t, other.Close())
			}
			must(t, os.Rename(path+".backup", path))
			kerneltest.Until(t, func() bool { return maps.Equal(m.Keys(), want) })
			if m.count.Load() == 0 {
				t.Error("the restore was not detected")
			}
			storetest.Put(t, s, "b/after", "1")
			want["b/after"] = "1"
			kerneltest.Until(t, func() bool { return maps.Equal(m.Keys(), want) })
		})
	}
}

// TestEtcdReplaced checks that a different etcd cluster is detected, however high its revision.
func TestEtcdReplaced(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	s, e := c.Store(t), c.Members[0]
	storetest.Put(t, s, "a/old", "1")
	m := follow(t, s)
	kerneltest.Until(t, func() bool { return len(m.Keys()) == 1 })
	e.Kill()
	e.Replace()
	e.Restart()
	e.Wait()
	other := c.Store(t)
	for range 20 {
		storetest.Put(t, other, "b/new", "1")
	}
	kerneltest.Until(t, func() bool { return maps.Equal(m.Keys(), map[string]string{"b/new": "1"}) })
	if m.count.Load() == 0 {
		t.Error("the replacement was not detected")
	}
}

// TestEtcdNotRestored checks that an outage, or a rolling restart of the members, does not count as a restore.
func TestEtcdNotRestored(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	s := c.Store(t)
	m := follow(t, s)
	for i, e := range c.Members {
		e.Kill()
		storetest.Put(t, s, fmt.Sprint("a/", i), "1")
		e.Restart()
		e.Wait()
	}
	kerneltest.Until(t, func() bool { return len(m.Keys()) == 3 })
	resets, _, _ := m.Counts()
	if m.count.Load() != 0 || resets != 1 || !errors.Is(store.ErrRestored, store.ErrCompacted) {
		t.Errorf("set back %d times, listed %d times", m.count.Load(), resets)
	}
}
