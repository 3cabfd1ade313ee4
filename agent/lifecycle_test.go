package agent

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// failing is a reconciler that always fails. It resets the retry pause to its initial value each time.
type failing struct {
	recorder
	status *status
	looks  atomic.Int32
}

func (f *failing) reconcile(*desired.State, bool) *reconcile.Report {
	f.looks.Add(1)
	f.status.mu.Lock()
	f.status.pause = 0
	f.status.mu.Unlock()
	return &reconcile.Report{Errors: []error{errors.New("no space in the kernel")}}
}

// startAgent starts an agent with a file store. The returned function stops it.
func startAgent(t *testing.T, k reconciler, listen string) (a *Agent, stop func()) {
	t.Helper()
	dir := t.TempDir()
	c := &config.Config{Node: "a", Network: simulated(), Listen: listen, Store: config.Store{File: filepath.Join(dir, "store")}}
	s, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	a, err = newAgent(Options{Config: c, Store: s, Lib: dir, Run: filepath.Join(dir, "r"), Log: quietLog()}, k)
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := k.(*failing); ok {
		f.status = a.status
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	return a, func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestOneRetryPerPause checks that other triggers during the pause do not add retries.
func TestOneRetryPerPause(t *testing.T) {
	t.Parallel()
	k := &failing{recorder: recorder{netip.MustParsePrefix("192.0.2.1/24")}}
	a, stop := startAgent(t, k, "")
	defer stop()
	for range 15 {
		time.Sleep(2 * quiet)
		a.kick()
	}
	time.Sleep(firstRetry)
	before := k.looks.Load()
	began := time.Now()
	time.Sleep(4 * firstRetry)
	n, took := k.looks.Load()-before, time.Since(began)
	if n == 0 || int64(n) > int64(took/firstRetry)+1 {
		t.Errorf("%d reconciliations in %v, want one after each pause of %v", n, took, firstRetry)
	}
}

// TestStopLeaksNoGoroutines is not parallel: it counts the goroutines of the process.
func TestStopLeaksNoGoroutines(t *testing.T) {
	k := &recorder{netip.MustParsePrefix("192.0.2.1/24")}
	once := func() {
		a, stop := startAgent(t, k, "127.0.0.1:0")
		for a.status.NotReady() != nil && len(a.State().Reasons) > 1 {
			time.Sleep(time.Millisecond)
		}
		stop()
	}
	once() // warm up what is created once per process
	before := remain(t, 0)
	for range 10 {
		once()
	}
	if after := remain(t, before); after > before {
		raw := make([]byte, 1<<20)
		t.Errorf("%d goroutines after one agent, %d after eleven:\n%s", before, after, raw[:runtime.Stack(raw, true)])
	}
}

// remain returns the number of goroutines once it no longer drops.
func remain(t *testing.T, want int) (n int) {
	t.Helper()
	for end := time.Now().Add(kerneltest.Slow(10 * time.Second)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		now := runtime.NumGoroutine()
		if now <= want || want == 0 && now == n {
			return now
		}
		n = now
	}
	return n
}
