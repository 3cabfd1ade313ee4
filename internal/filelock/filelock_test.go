package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A lock that another holds is named at the end of the wait, with its holder.
func TestBusy(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/lock"
	first, second := open(t, path), open(t, path)
	if ok, err := Try(int(first.Fd())); !ok || err != nil {
		t.Fatal(ok, err)
	}
	limit := kerneltest.Slow(time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := Lock(ctx, int(second.Fd()), path)
	var busy *Busy
	if !errors.As(err, &busy) {
		t.Fatalf("got %v", err)
	}
	if left := limit - busy.Waited; left < limit/10 || ctx.Err() != nil {
		t.Errorf("after %v of %v there is no time left for the work", busy.Waited, limit)
	}
	comm, _ := os.ReadFile("/proc/self/comm")
	want := fmt.Sprintf("the lock %s is held by %s (process %d)", path, strings.TrimSpace(string(comm)), os.Getpid())
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}

// TestBusyAfterRemoval checks that the error names the holder also if the lock's file was deleted, as the last holder of some
// locks does, and that it claims nothing about a holder that is gone.
func TestBusyAfterRemoval(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/lock"
	first, second := open(t, path), open(t, path)
	if ok, err := Try(int(first.Fd())); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), kerneltest.Slow(100*time.Millisecond))
	defer cancel()
	if err, want := Lock(ctx, int(second.Fd()), path), fmt.Sprintf("(process %d)", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
	want := "the lock " + path + " was held by a process that has released it since, or that cannot be seen from here"
	for _, text := range []string{Describe(path), (&Busy{Path: path}).Error()} {
		if !strings.HasPrefix(text, want) {
			t.Errorf("got %q, want %q", text, want)
		}
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/lock"
	first, second := open(t, path), open(t, path)
	if ok, err := Try(int(first.Fd())); !ok || err != nil {
		t.Fatal(ok, err)
	}
	time.AfterFunc(30*time.Millisecond, func() { first.Close() })
	if err := Lock(context.Background(), int(second.Fd()), path); err != nil {
		t.Error(err)
	}
	third := open(t, path)
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("the runtime went away")
	time.AfterFunc(30*time.Millisecond, func() { cancel(gone) })
	if err := Lock(ctx, int(third.Fd()), path); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct{ left, wait time.Duration }{
		{0, patience}, // no deadline
		{4 * time.Minute, 4*time.Minute - reserve},
		{12 * time.Second, 6 * time.Second},
	} {
		ctx := context.Background()
		if c.left > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, now.Add(c.left))
			defer cancel()
		}
		if have := deadline(ctx, now).Sub(now); have != c.wait {
			t.Errorf("with %v left the wait is %v, want %v", c.left, have, c.wait)
		}
	}
}

func TestHolder(t *testing.T) {
	t.Parallel()
	self := fmt.Sprint(os.Getpid())
	for name, c := range map[string]struct{ locks, want string }{
		"nobody":             {"", ""},
		"another file":       {"1: FLOCK  ADVISORY  WRITE " + self + " 08:01:77 0 EOF\n", ""},
		"another kind":       {"1: POSIX  ADVISORY  WRITE " + self + " 08:01:7 0 EOF\n", ""},
		"not to be seen":     {"1: FLOCK  ADVISORY  WRITE 0 08:01:7 0 EOF\n", ""},
		"gone":               {"1: FLOCK  ADVISORY  WRITE 4194305 08:01:7 0 EOF\n", "process 4194305"},
		"who waits, and cut": {"1: -> FLOCK  ADVISORY  WRITE 12 08:01:7 0 EOF\n2: FLOCK", ""},
	} {
		if have, _ := holder(c.locks, 7); have != c.want {
			t.Errorf("%s: %q, want %q", name, have, c.want)
		}
	}
}

// TestCopyKeepsNoLock closes a file while a process that is being started has a copy of it, which dup stands for.
func TestCopyKeepsNoLock(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*os.File) error{
		"Close":   Close,
		"CloseFD": func(f *os.File) error { n, err := dup(int(f.Fd())); return errors.Join(err, CloseFD(n), f.Close()) },
	} {
		path := t.TempDir() + "/lock"
		f := open(t, path)
		if err := Lock(t.Context(), int(f.Fd()), path); err != nil {
			t.Fatal(err)
		}
		n, err := dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(n)
		if err := end(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if ok, err := Try(int(open(t, path).Fd())); !ok || err != nil {
			t.Errorf("%s: the lock is held: %v", name, err)
		}
	}
}

// TestAbandonedWait checks that a wait that was given up keeps no lock once it gets it, even with a copy of the file.
func TestAbandonedWait(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/lock"
	first, second := open(t, path), open(t, path)
	if ok, err := Try(int(first.Fd())); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(30*time.Millisecond, cancel)
	if err := Lock(ctx, int(second.Fd()), path); err == nil {
		t.Fatal("locked twice")
	}
	n, err := dup(int(second.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(n)
	if err := errors.Join(second.Close(), Close(first)); err != nil {
		t.Error(err)
	}
	if err := Lock(t.Context(), int(open(t, path).Fd()), path); err != nil {
		t.Error(err)
	}
}

// TestHolderWhileOthersUnlock asks for the holder of a lock while many other locks begin and end, which moves the lines
// of /proc/locks.
func TestHolderWhileOthersUnlock(t *testing.T) {
	dir := t.TempDir()
	lock := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return nil
		}
		if err := Lock(t.Context(), int(f.Fd()), f.Name()); err != nil {
			t.Error(err)
		}
		return f
	}
	var all sync.WaitGroup
	stop := make(chan struct{})
	for i := range 16 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				var held []*os.File
				for j := range 8 {
					held = append(held, lock(fmt.Sprint(i, "-", j)))
				}
				for _, f := range held {
					_ = Close(f)
				}
			}
		})
	}
	mine := lock("mine")
	defer Close(mine)
	for range 300 {
		if who := holderAt(mine.Name()); who == "" {
			t.Error("the holder of a lock that is held is not known")
			break
		}
	}
	close(stop)
	all.Wait()
}
