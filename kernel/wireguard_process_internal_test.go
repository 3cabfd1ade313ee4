package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestSilentDevice starts a process that never answers, and stops to wait for it. The process must not remain: it could
// create the link later.
func TestSilentDevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	ctx, stop := context.WithCancelCause(t.Context())
	e, err := Open(nil, Options{Context: ctx})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	w := &WireGuard{Name: "silent", Socket: filepath.Join(dir, "socket"), Program: []string{"sh", "-c", "echo $$ >" + file + "; exec sleep 600"}}
	failed := make(chan error)
	go func() { failed <- w.start(e) }()
	pid := 0
	kerneltest.Until(t, func() bool {
		text, _ := os.ReadFile(file) // it does not exist yet
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	defer func() {
		if t.Failed() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	reason := errors.New("the agent stops")
	stop(reason)
	select {
	case err := <-failed:
		if !errors.Is(err, reason) {
			t.Errorf("start: %v", err)
		}
	case <-time.After(kerneltest.Slow(10 * time.Second)):
		t.Error("start goes on after its context has ended")
	}
	kerneltest.Until(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}
