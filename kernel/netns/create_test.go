package netns_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
)

func TestCreateRemove(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "web")
	for range 2 { // the second time it exists
		if err := netns.Create("", path); err != nil {
			t.Fatal(err)
		}
	}
	if out := kerneltest.In(t, path, "ip", "-br", "link"); !strings.HasPrefix(out, "lo ") || !strings.Contains(out, "UP") {
		t.Errorf("the new namespace has\n%s", out)
	}
	if err := netns.Remove("", path); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
	if err := netns.Remove("", path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed again: %v", err)
	}
	must(t, os.WriteFile(path, nil, 0o600)) // as after a kill before the mount
	if err := netns.Remove("", path); err != nil {
		t.Errorf("a file without a mount: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if err := netns.Create("", filepath.Join(dir, "file", "web")); err == nil {
		t.Error("created below a file")
	}
}

// TestCreateInMountNamespace creates a namespace that is mounted in another mount namespace only.
func TestCreateInMountNamespace(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	path := filepath.Join(t.TempDir(), "web")
	mounts, end := make(chan string), make(chan struct{})
	defer close(end)
	go func() { // the thread ends with the goroutine
		runtime.LockOSThread()
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
			t.Error(err)
		}
		mounts <- fmt.Sprintf("/proc/%d/task/%d/ns/mnt", os.Getpid(), unix.Gettid())
		<-end
	}()
	there := <-mounts
	must(t, netns.Create(there, path))
	if ns, err := netns.Open(path); err == nil {
		ns.Close()
		t.Error("it is mounted in the test's mount namespace")
	}
	kerneltest.Run(t, "nsenter", "--mount="+there, "nsenter", "--net="+path, "ip", "link", "show", "lo")
	must(t, netns.Create(there, path)) // it exists, although this mount namespace does not show it
	if n := strings.Count(kerneltest.Run(t, "nsenter", "--mount="+there, "cat", "/proc/self/mounts"), " "+path+" "); n != 1 {
		t.Errorf("%d namespaces are mounted at the path, want 1", n)
	}
	must(t, netns.Remove(there, path))
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
	for _, f := range []func(string, string) error{netns.Create, netns.Remove} {
		if err := f(path+".none", path); err == nil || !strings.Contains(err.Error(), "open the mount namespace") {
			t.Errorf("a mount namespace that does not exist: %v", err)
		}
		if err := f("/proc/self/ns/net", path); err == nil || !strings.Contains(err.Error(), "enter the mount namespace") {
			t.Errorf("no mount namespace: %v", err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOpenOtherFiles checks that something else at a namespace's path is no namespace, and that opening it does not wait.
func TestOpenOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo, loop, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "loop"), filepath.Join(dir, "file")
	must(t, unix.Mkfifo(fifo, 0o600))
	must(t, os.Symlink(loop, loop))
	must(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{fifo, loop, file, file + "/below", dir, "/proc/self/ns/mnt", "/dev/null", "/dev/tty", dir + "/none", dir + "/" + strings.Repeat("x", 300)} {
		opened := make(chan error, 1)
		go func() {
			ns, err := netns.Open(path)
			if err == nil {
				ns.Close()
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(kerneltest.Slow(5 * time.Second)):
			t.Errorf("%s: opening it waits", path)
		}
	}
	ns, err := netns.Open("/proc/self/ns/net")
	must(t, err)
	defer ns.Close()
	if flags, err := unix.FcntlInt(uintptr(ns.FD()), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a child process would inherit it: %d, %v", flags, err)
	}
}
