package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// reboot simulates a reboot: programs that start from now on see another boot ID.
func (m *machine) reboot(n int) error {
	file := filepath.Join(m.Dir, "boot_id")
	if err := os.WriteFile(file, fmt.Appendf(nil, "00000000-0000-4000-8000-%012d\n", n), 0o444); err != nil {
		return err
	}
	if n > 1 {
		return nil // already mounted, and now changed
	}
	return unix.Mount(file, "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, "")
}

// losses lists the possible contents of a file whose data was not yet on the disk at the power cut. The name exists;
// the content may be missing or wrong.
var losses = []struct {
	name string
	do   func(size int64) []byte
}{
	{"all data was written", nil},
	{"unsynced files are empty", func(int64) []byte { return nil }},
	{"unsynced files have only zeros", func(n int64) []byte { return make([]byte, n) }},
}

// TestPowerCut cuts the power at every call of an allocation and of a release, and loses all data that the operation
// wrote. After the reboot addresses can be allocated, no address is allocated twice, and none leaks: GC frees the
// addresses without an owner.
//
// All of the data may be lost because the plugins sync nothing (ADR 1), which the test checks. The store of the agent
// syncs every transaction: see TestFileSurvivesPowerCut of agent/store.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	var s scene
	for _, s = range scenes() {
		if s.name == "host-local" {
			break
		}
	}
	m := newMachine(t, &s)
	kerneltest.PrivateMounts(t)
	boot := 0
	l := m.learn()
	for _, verb := range []string{"ADD", "DEL"} {
		if i := slices.IndexFunc(l[verb], syncs); i >= 0 {
			t.Errorf("%s: %s: loseData must keep what was synced before the power cut", verb, l[verb][i])
		}
		for _, p := range points(verb, l[verb], &s) {
			if p.kind != kindKill && p.kind != kindCut || !strings.Contains(p.class, "$WORK/ipam") {
				continue
			}
			for _, loss := range losses {
				boot++
				if err := m.cutPower(p, loss.do, boot); err != nil {
					t.Errorf("%s; %s: %v", p, loss.name, err)
					_ = os.RemoveAll(filepath.Join(m.Dir, "ipam"))
				}
			}
		}
	}
	t.Logf("the power was cut %d times", boot)
	if boot < 50 {
		t.Error("too few power cuts: want 50")
	}
}

// syncs reports whether a call of a class writes data to the disk.
func syncs(class string) bool {
	return slices.ContainsFunc([]string{"fsync", "fdatasync", "sync", "syncfs", "msync", "sync_file_range"}, func(name string) bool {
		return class == name || strings.HasPrefix(class, name+" ")
	})
}

func (m *machine) cutPower(p point, loss func(int64) []byte, boot int) error {
	if p.verb == "DEL" {
		if _, err := m.run("ADD", ""); err != nil {
			return err
		}
	}
	start := time.Now().Add(-10 * time.Millisecond) // one tick of the clock for file timestamps
	if _, err := m.inject(p, ""); err != nil {
		return err
	}
	if err := loseData(filepath.Join(m.Dir, "ipam"), start, loss); err != nil {
		return err
	}
	if err := m.reboot(boot); err != nil {
		return err
	}
	before := m.allocated()
	m.id = nextContainer // no container survives a reboot
	defer func() { m.id = container }()
	result, err := m.run("ADD", "")
	if err != nil {
		return fmt.Errorf("ADD after the reboot: %w", err)
	}
	if n := m.allocated(); addresses(result) != 2 || n > before+2 {
		return fmt.Errorf("after the reboot %d addresses are allocated, before it %d; the result is %s", n, before, result)
	}
	time.Sleep(tick)
	if _, err := m.run("GC", ""); err != nil {
		return err
	}
	if n := m.allocated(); n != 0 {
		return fmt.Errorf("GC left %d addresses:\n%s", n, m.Files(stateDirs...))
	}
	return nil
}

// loseData applies the loss to the files that were changed since the given time. A hard link shares the content of its
// other name.
func loseData(dir string, since time.Time, loss func(int64) []byte) error {
	if loss == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil || info.ModTime().Before(since) {
			return err
		}
		return os.WriteFile(path, loss(info.Size()), 0o600)
	})
}

// TestFullOrReadOnlyDisk makes the disk of each state directory full or read-only. ADD and DEL succeed or report the
// reason. When the disk is writable again, DEL leaves nothing.
func TestFullOrReadOnlyDisk(t *testing.T) {
	for _, s := range scenes() {
		roots := map[string][]string{
			"fairlead-chain": {"run", "ipam"}, "flannel": {"run", "lib"}, "fairlead-pod": {"run", "lib", "ipam"}, "example/10-my-network": {"run", "lib", "cache"}, "host-device": {"run", "ipam"},
		}[s.name]
		if roots == nil {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, &s)
			kerneltest.PrivateMounts(t)
			for _, root := range roots {
				for _, readOnly := range []bool{false, true} {
					for _, attached := range []bool{false, true} {
						if err := m.runWithBrokenDisk(root, readOnly, attached); err != nil {
							t.Errorf("%s read-only: %v, attached before: %v: %v", root, readOnly, attached, err)
						}
					}
				}
			}
		})
	}
}

func (m *machine) runWithBrokenDisk(root string, readOnly, attached bool) (err error) {
	dir := filepath.Join(m.Dir, root)
	if err := errors.Join(os.MkdirAll(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=700")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	if attached {
		if _, err := m.run("ADD", ""); err != nil {
			return err
		}
	}
	end, err := breakDisk(dir, readOnly)
	if err != nil {
		return err
	}
	for _, verb := range []string{"ADD", "DEL"} {
		output, err := m.run(verb, "")
		if err != nil && verb == "DEL" && attached && (root == "run" || root == "lib") && !readOnly { // it makes room, and must not need any
			return err
		}
		if err != nil && (panicked(output) || !strings.Contains(output, "no space left") && !strings.Contains(output, "read-only file system") && !strings.Contains(output, "already attached")) {
			return err
		}
	}
	if err := end(); err != nil {
		return err
	}
	if _, err := m.run("DEL", ""); err != nil {
		return fmt.Errorf("after the disk is writable again: %w", err)
	}
	return m.checkClean()
}

// breakDisk fills a disk, or makes it read-only, until end is called.
func breakDisk(dir string, readOnly bool) (end func() error, err error) {
	if readOnly {
		remount := func(flags uintptr) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "") }
		return func() error { return remount(0) }, remount(unix.MS_RDONLY)
	}
	file := filepath.Join(dir, "filler")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		return nil, fmt.Errorf("the disk did not fill up: %w", err)
	}
	return func() error { return os.Remove(file) }, nil
}
