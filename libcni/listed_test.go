package libcni_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
)

// listedExec notes the times at which the plugins of a GC believe that their list was made.
type listedExec struct {
	invoke.RawExec
	times []string
}

func (e *listedExec) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }

func (e *listedExec) ExecPlugin(_ context.Context, _ string, _ []byte, environ []string) ([]byte, error) {
	for _, kv := range environ {
		if t, ok := strings.CutPrefix(kv, invoke.ListedVariable+"="); ok {
			e.times = append(e.times, t)
		}
	}
	return nil, nil
}

// TestGCPluginsShareStart checks that all plugins of a GC get the time at which the caller's list was made. With a later
// time, the last plugin removed its part of an attachment that was added while the GC ran.
func TestGCPluginsShareStart(t *testing.T) {
	t.Parallel()
	exec := &listedExec{}
	c := libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), exec)
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first"},{"type":"second"}]}`)
	listed := time.Now().Add(-time.Second)
	if err := c.GCNetworkList(t.Context(), list, &libcni.GCArgs{Listed: listed}); err != nil {
		t.Fatal(err)
	}
	want := strconv.FormatInt(listed.UnixNano(), 10)
	if !slices.Equal(exec.times, []string{want, want}) {
		t.Errorf("times %q, want %q twice", exec.times, want)
	}
}

// TestGCLocksStale checks that GC leaves an attachment alone that another process adds again, or deletes, before GC has
// its lock.
func TestGCLocksStale(t *testing.T) {
	t.Parallel()
	e := &waitingExec{}
	dir := t.TempDir()
	ours, other := libcni.NewCNIConfigWithCacheDir(nil, dir, e), libcni.NewCNIConfigWithCacheDir(nil, dir, &waitingExec{})
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first"}]}`)
	for _, id := range []string{"stale", "added", "deleted"} {
		if _, err := other.AddNetworkList(t.Context(), list, runtimeConf(id)); err != nil {
			t.Fatal(err)
		}
	}
	var locked, unlocked atomic.Int32
	lock := func(ctx context.Context, a cni.Attachment) (func(), error) {
		locked.Add(1)
		var err error
		switch a.ContainerID {
		case "added":
			_, err = other.AddNetworkList(ctx, list, runtimeConf("added"))
		case "deleted":
			err = other.DelNetworkList(ctx, list, runtimeConf("deleted"))
		}
		return func() { unlocked.Add(1) }, err
	}
	if err := ours.GCNetworkList(t.Context(), list, &libcni.GCArgs{Lock: lock}); err != nil {
		t.Fatal(err)
	}
	left, err := ours.GetCachedAttachments("")
	if err != nil || len(left) != 1 || left[0].ContainerID != "added" {
		t.Errorf("left: %v, %v", left, err)
	}
	if e.dels != 1 || locked.Load() != 3 || unlocked.Load() != 3 {
		t.Errorf("%d DELs, %d locks, %d unlocked", e.dels, locked.Load(), unlocked.Load())
	}
}
