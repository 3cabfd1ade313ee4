package podnet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/podnet"
)

// desk is a watched configuration directory inside an unwatched one.
type desk struct {
	*podnet.Manager
	t         *testing.T
	root, dir string
}

func newDesk(t *testing.T, more ...string) *desk {
	t.Helper()
	root := t.TempDir()
	d := &desk{t: t, root: root, dir: filepath.Join(root, "etc", "cni", "net.d")}
	dirs := []string{d.dir}
	for _, m := range more {
		dirs = append(dirs, filepath.Join(root, m))
	}
	m, err := podnet.New(podnet.Options{ConfDirs: dirs, StateDir: filepath.Join(root, "pods"), PluginDirs: []string{root}})
	must(t, err)
	d.Manager = m
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Watch(ctx, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v", err)
		}
	})
	return d
}

func network(name string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": "bridge"}]}`, name)
}

func (d *desk) mkdir(path string) {
	d.t.Helper()
	must(d.t, os.MkdirAll(path, 0o755))
}

func (d *desk) write(path, content string) {
	d.t.Helper()
	must(d.t, os.WriteFile(filepath.Join(d.dir, path), []byte(content), 0o644))
}

// replace writes a temporary file and renames it.
func (d *desk) replace(path, content string) {
	d.t.Helper()
	d.write(".tmp", content)
	must(d.t, os.Rename(filepath.Join(d.dir, ".tmp"), filepath.Join(d.dir, path)))
}

// sees waits until the networks match, the default first, with "*" after one whose file is currently unreadable, and
// until the problems contain the given words.
func (d *desk) sees(want string, problems ...string) {
	d.t.Helper()
	var got string
	var have []string
	ok := func() bool {
		var names []string
		s := d.Networks()
		for _, n := range s.Networks {
			if n.Kept {
				n.Name += "*"
			}
			names = append(names, n.Name)
		}
		got, have = strings.Join(names, " "), nil
		for _, p := range s.Problems {
			have = append(have, p.Error())
		}
		return got == want && len(have) == len(problems) && !slices.ContainsFunc(problems, func(p string) bool {
			return !slices.ContainsFunc(have, func(h string) bool { return strings.Contains(h, p) })
		})
	}
	defer func() {
		if d.t.Failed() {
			d.t.Logf("want %q %q, have %q %q", want, problems, got, have)
		}
	}()
	kerneltest.Until(d.t, ok)
}

// TestWatchFiles covers all changes of files.
func TestWatchFiles(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.sees("", "file does not exist")
	d.mkdir(filepath.Join(d.root, "etc")) // one directory at a time, as an administrator does
	d.mkdir(filepath.Join(d.root, "etc", "cni"))
	d.mkdir(d.dir)
	d.sees("")
	d.write("20-b.conflist", network("b"))
	d.sees("b")
	d.write("10-a.conf", `{"cniVersion": "1.0.0", "name": "a", "type": "bridge"}`)
	d.write("30-c.json", `{"cniVersion": "1.0.0", "name": "c", "type": "bridge"}`)
	d.write("README", "not a network")
	d.sees("a b c")

	// A file is half-written, then empty, then complete again.
	d.write("20-b.conflist", `{"cniVersion": "1.0.0", "name": "b", "plu`)
	d.sees("a b* c", "its last good state is used")
	d.write("20-b.conflist", "")
	d.sees("a b* c", "20-b.conflist")
	d.write("20-b.conflist", network("b2"))
	d.sees("a b2 c")
	d.replace("20-b.conflist", network("b3"))
	d.sees("a b3 c")

	// A file is renamed, duplicated and removed.
	must(t, os.Rename(filepath.Join(d.dir, "20-b.conflist"), filepath.Join(d.dir, "05-b.conflist")))
	d.sees("b3 a c")
	d.write("40-a.conflist", network("a"))
	d.sees("b3 a c", "ignored, because "+filepath.Join(d.dir, "10-a.conf")+" defines network a, too")
	must(t, os.Remove(filepath.Join(d.dir, "10-a.conf")))
	d.sees("b3 c a")
	must(t, os.Rename(filepath.Join(d.dir, "05-b.conflist"), filepath.Join(d.dir, "05-b.off")))
	d.sees("c a")

	// A list gets another name, and one was never valid.
	d.write("50-x.conf", network("x"))
	d.sees("c a", "must end in .conflist")
	d.write("50-x.conf", `{"name": "x y", "type": "bridge"}`)
	d.sees("c a", "invalid characters found in network name")
	must(t, os.Remove(filepath.Join(d.dir, "50-x.conf")))
	d.sees("c a")

	// Plugins are added in a directory next to a list.
	d.write("60-drop.conflist", `{"cniVersion": "1.0.0", "name": "drop"}`)
	d.sees("c a", "no plugins in its list and no *.conf in")
	d.mkdir(filepath.Join(d.dir, "drop"))
	d.sees("c a", "no plugins in its list and no *.conf in")
	d.write("drop/1.conf", `{"type": `)
	d.sees("c a", "1.conf")
	d.write("drop/1.conf", `{"type": "bridge"}`)
	d.sees("c a drop")
	d.write("drop/1.conf", "")
	d.sees("c a drop*", "drop/1.conf")
}

// TestWatchDirectory covers all changes of the directory.
func TestWatchDirectory(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.mkdir(d.dir)
	d.write("a.conflist", network("a"))
	d.sees("a")
	aside := d.dir + ".old"
	must(t, os.Rename(d.dir, aside))
	d.sees("", "file does not exist")
	d.mkdir(d.dir)
	d.sees("")
	d.write("b.conflist", network("b"))
	d.sees("b")
	for range 3 { // a reinstallation: the file system may reuse the inode
		must(t, os.RemoveAll(d.dir))
		d.mkdir(d.dir)
		d.sees("")
		d.write("b.conflist", network("b"))
		d.sees("b")
	}
	must(t, os.WriteFile(filepath.Join(aside, "c.conflist"), []byte(network("c")), 0o644)) // no longer a configuration directory
	must(t, os.RemoveAll(d.dir))
	must(t, os.Rename(aside, d.dir))
	d.sees("a c")
	must(t, os.RemoveAll(filepath.Join(d.root, "etc"))) // with its parents
	d.sees("", "file does not exist")
	d.mkdir(d.dir)
	d.write("d.conflist", network("d"))
	d.sees("d")
	must(t, os.RemoveAll(d.dir))
	must(t, os.WriteFile(d.dir, nil, 0o644))
	d.sees("", "not a directory")
	must(t, os.Remove(d.dir))

	// A symbolic link is swapped, as a deployment does.
	one, two := filepath.Join(d.root, "one"), filepath.Join(d.root, "two")
	d.mkdir(one)
	d.mkdir(two)
	must(t, os.WriteFile(filepath.Join(one, "n.conflist"), []byte(network("one")), 0o644))
	must(t, os.WriteFile(filepath.Join(two, "n.conflist"), []byte(network("two")), 0o644))
	must(t, os.Symlink(one, d.dir))
	d.sees("one")
	must(t, os.Symlink(two, d.dir+"~"))
	must(t, os.Rename(d.dir+"~", d.dir))
	d.sees("two")
	must(t, os.WriteFile(filepath.Join(two, "n.conflist"), []byte(network("three")), 0o644))
	d.sees("three")
}

// TestWatchConfigMap checks the layout of a mounted ConfigMap: links to a directory behind a link, which Kubernetes
// swaps.
func TestWatchConfigMap(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.mkdir(d.dir)
	swap := func(version, content string) {
		dir := filepath.Join(d.dir, ".."+version)
		d.mkdir(dir)
		must(t, os.WriteFile(filepath.Join(dir, "10-n.conflist"), []byte(content), 0o644))
		must(t, os.Symlink(".."+version, filepath.Join(d.dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(d.dir, "..data_tmp"), filepath.Join(d.dir, "..data")))
	}
	swap("1", network("one"))
	must(t, os.Symlink("..data/10-n.conflist", filepath.Join(d.dir, "10-n.conflist")))
	d.sees("one")
	swap("2", network("two"))
	must(t, os.RemoveAll(filepath.Join(d.dir, "..1")))
	d.sees("two")
	swap("3", "{")
	d.sees("two*", "its last good state is used")
	swap("4", network("four"))
	d.sees("four")

	// A file is a link to a file elsewhere, which changes there.
	far := filepath.Join(d.root, "far")
	d.mkdir(far)
	must(t, os.WriteFile(filepath.Join(far, "f"), []byte(network("far")), 0o644))
	must(t, os.Symlink(filepath.Join(far, "f"), filepath.Join(d.dir, "20-f.conflist")))
	d.sees("four far")
	must(t, os.WriteFile(filepath.Join(far, "f"), []byte(network("farther")), 0o644))
	d.sees("four farther")
	must(t, os.Remove(filepath.Join(far, "f")))
	d.sees("four", "20-f.conflist")
}

// TestWatchSeveral checks that the first directory has the default network and wins for a duplicate name.
func TestWatchSeveral(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "more", "none")
	d.mkdir(d.dir)
	d.mkdir(filepath.Join(d.root, "more"))
	d.write("90-a.conflist", network("a"))
	must(t, os.WriteFile(filepath.Join(d.root, "more", "10-b.conflist"), []byte(network("b")), 0o644))
	must(t, os.WriteFile(filepath.Join(d.root, "more", "20-a.conflist"), []byte(network("a")), 0o644))
	d.sees("a b", "defines network a, too", "none: file does not exist")
}

// TestEmptyConfDir verifies that an empty directory, as in NETCONFPATH=/etc/cni/net.d:, is not the current one.
func TestEmptyConfDir(t *testing.T) {
	here, dir := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(here, "0.conflist"), []byte(network("here")), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "a.conflist"), []byte(network("a")), 0o644))
	t.Chdir(here)
	m, err := podnet.New(podnet.Options{ConfDirs: []string{"", dir, ""}, StateDir: filepath.Join(dir, "pods")})
	must(t, err)
	if s := m.Networks(); len(s.Networks) != 1 || s.Default != "a" || len(s.Problems) != 0 {
		t.Errorf("got %+v", s)
	}
}

// TestWatchUnreadable checks that an unreadable file is reported and its last content kept. Only an unprivileged
// process can meet this, so a thread of the test drops its privileges.
func TestWatchUnreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.conflist")
	must(t, os.WriteFile(file, []byte(network("a")), 0o644))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o755))
	m, err := podnet.New(podnet.Options{ConfDirs: []string{dir}, StateDir: filepath.Join(dir, "pods")})
	must(t, err)
	unprivileged(t, func() {
		for _, c := range []struct {
			path string
			mode os.FileMode
		}{{file, 0o200}, {dir, 0o300}} {
			must(t, os.Chmod(c.path, c.mode))
			m.Reload()
			s := m.Networks()
			if len(s.Networks) != 1 || len(s.Problems) != 1 || !s.Problems[0].Kept || !errors.Is(s.Problems[0], os.ErrPermission) {
				t.Errorf("%s: %+v", c.path, s)
			}
			must(t, os.Chmod(c.path, 0o755))
			m.Reload()
			if s := m.Networks(); len(s.Problems) != 0 {
				t.Errorf("readable again: %+v", s)
			}
		}
	})
}

// unprivileged runs f on a thread that cannot bypass file permissions.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		const capDacOverride, capDacReadSearch = 1, 2
		if err := dropCapabilities(1<<capDacOverride | 1<<capDacReadSearch); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// dropCapabilities removes some of the thread's effective capabilities.
func dropCapabilities(drop uint32) error {
	head := struct {
		version uint32
		pid     int32
	}{0x20080522, 0} // _LINUX_CAPABILITY_VERSION_3
	var data [2]struct{ effective, permitted, inheritable uint32 }
	if _, _, e := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); e != 0 {
		return e
	}
	data[0].effective &^= drop
	if _, _, e := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); e != 0 {
		return e
	}
	return nil
}
