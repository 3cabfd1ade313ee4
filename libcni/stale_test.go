package libcni_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/libcni"
)

// waitingExec is an Exec whose DELs take a while. It notes how many run at once, and in which network namespaces.
type waitingExec struct {
	libcni.Exec
	onDel func()

	mu            sync.Mutex
	running, most int
	dels          int
	netns         []string
}

func (e *waitingExec) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }

func (e *waitingExec) ExecPlugin(_ context.Context, _ string, _ []byte, environ []string) ([]byte, error) {
	if !slices.Contains(environ, "CNI_COMMAND=DEL") {
		return []byte(`{"cniVersion":"1.1.0"}`), nil
	}
	ns, err := os.Readlink("/proc/thread-self/ns/net")
	e.mu.Lock()
	e.running++
	e.dels++
	e.most = max(e.most, e.running)
	if !slices.Contains(e.netns, ns) {
		e.netns = append(e.netns, ns)
	}
	e.mu.Unlock()
	if e.onDel != nil {
		e.onDel()
	}
	time.Sleep(5 * time.Millisecond)
	e.mu.Lock()
	e.running--
	e.mu.Unlock()
	return nil, err
}

// staleHost returns a runtime with stale attachments, and its GC.
func staleHost(t *testing.T, e *waitingExec) (collect func(context.Context) error) {
	t.Helper()
	c := libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), e)
	list := mustList(t, `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"first"}]}`)
	for i := range 40 {
		if _, err := c.AddNetworkList(t.Context(), list, runtimeConf(fmt.Sprint("c", i))); err != nil {
			t.Fatal(err)
		}
	}
	return func(ctx context.Context) error { return c.GCNetworkList(ctx, list, nil) }
}

// TestGCDeletesAtOnce checks that GC does not wait for one DEL after the other: the kernel takes 20 ms to remove a link.
func TestGCDeletesAtOnce(t *testing.T) {
	t.Parallel()
	e := &waitingExec{}
	if err := staleHost(t, e)(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.dels != 40 || e.most < 2 || e.most > 8 {
		t.Errorf("%d DELs, at most %d at once", e.dels, e.most)
	}
}

// TestGCStaysInNetns checks that a GC on a thread that entered a namespace runs every DEL there.
func TestGCStaysInNetns(t *testing.T) {
	t.Parallel()
	e := &waitingExec{}
	collect := staleHost(t, e)
	var own string
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		own, _ = os.Readlink("/proc/thread-self/ns/net")
		done <- collect(t.Context())
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if e.dels != 40 || !slices.Equal(e.netns, []string{own}) {
		t.Errorf("%d DELs in %v, want all in %s", e.dels, e.netns, own)
	}
}

// TestInterruptedGC checks that a GC whose context ends starts no further DEL, and says how many remain.
func TestInterruptedGC(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	e := &waitingExec{onDel: func() { cancel(errors.New("the user pressed Ctrl-C")) }}
	err := staleHost(t, e)(ctx)
	want := fmt.Sprintf("GC was interrupted before the DEL of %d stale attachments: the user pressed Ctrl-C", 40-e.dels)
	if err == nil || e.dels > 8 || strings.Count(err.Error(), want) != 1 {
		t.Errorf("after %d DELs: %v, want %q", e.dels, err, want)
	}
}
