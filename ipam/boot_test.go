package ipam

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestReboot frees what an earlier boot's index lists and that is unchanged, and keeps everything else.
func TestReboot(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	before, after := Options{BootID: "before"}, Options{BootID: "after"}
	for _, id := range []string{"dead", "touched", "replaced", "dead2"} {
		allocate(t, dir, before, Owner{id, "eth0"}, sets)
	}
	d := directory(dir + "/net")
	mustWrite(t, d.file(addr("10.1.0.77")), "foreign\r\neth0")
	if err := os.Chmod(d.file(addr("10.1.0.3")), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.file(addr("10.1.0.4"))); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, d.file(addr("10.1.0.4")), "newer\r\neth0")
	with(t, dir, after, func(s *Store) {
		for id, want := range map[string]int{"dead": 0, "dead2": 0, "touched": 1, "replaced": 0, "newer": 1, "foreign": 1} {
			if got, err := s.Lookup(Owner{id, "eth0"}); err != nil || len(got) != want {
				t.Errorf("after the boot, %s has %v, %v; want %d", id, got, err, want)
			}
		}
	})
	// A file that survived one boot no longer belongs to Fairlead's index, and survives the next boot, too.
	with(t, dir, Options{BootID: "third"}, func(*Store) {})
	if got := held(t, dir); len(got) != 3 {
		t.Errorf("allocated at the end: %v", got)
	}
}

func mustWrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestInterruptedAllocation interrupts an allocation after each of its steps, as a kill would. The next process, in
// this boot or another, repairs the state.
func TestInterruptedAllocation(t *testing.T) {
	t.Parallel()
	o, a := Owner{"cut", "eth0"}, addr("10.1.0.2")
	for steps := range 5 {
		for _, boot := range []string{"same", "next"} {
			dir := t.TempDir()
			with(t, dir, Options{BootID: "same"}, func(s *Store) { interruptAllocation(t, s, o, steps) })
			with(t, dir, Options{BootID: "same"}, func(s *Store) {
				had, err := s.Lookup(o)
				if err != nil || (steps >= 3) != slices.Contains(had, a) {
					t.Errorf("interrupted after %d steps: its addresses are %v, %v", steps, had, err)
				}
			})
			wantClean(t, dir, boot, steps)
			if got := held(t, dir); boot == "next" && len(got) > 0 {
				t.Errorf("interrupted after %d steps: %v is still allocated after the reboot", steps, got)
			}
		}
	}
}

// wantClean opens the directory in a boot and fails if something was left. A temporary file stays until the next
// allocation.
func wantClean(t *testing.T, dir, boot string, steps int) {
	t.Helper()
	with(t, dir, Options{BootID: boot}, func(s *Store) {
		if _, err := os.Stat(s.temporary()); err == nil && steps != 1 {
			t.Errorf("interrupted after %d steps: the temporary file still exists", steps)
		}
		if s.index.header.pending.addr.IsValid() || !s.index.header.clean {
			t.Errorf("interrupted after %d steps: the index is not marked clean", steps)
		}
	})
}

func interruptAllocation(t *testing.T, s *Store, o Owner, steps int) {
	t.Helper()
	a := addr("10.1.0.2")
	var ino uint64
	for i, step := range []func() error{
		func() (err error) { ino, err = s.writeTemporary(o); return err },
		func() error { return s.beginChange(pendingAdd{ownerKey(o, a), a, ino, Uptime()}) },
		func() error { return syscall.Link(s.temporary(), s.dir.file(a)) },
		s.clearTemporary,
	} {
		if i == steps {
			return
		}
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInterruptedAllocationAcrossBoot interrupts an allocation and reboots before another process opens the directory.
func TestInterruptedAllocationAcrossBoot(t *testing.T) {
	t.Parallel()
	o := Owner{"cut", "eth0"}
	for steps := range 5 {
		dir := t.TempDir()
		with(t, dir, Options{BootID: "old"}, func(s *Store) { interruptAllocation(t, s, o, steps) })
		with(t, dir, Options{BootID: "new"}, func(*Store) {})
		if got := held(t, dir); len(got) > 0 {
			t.Errorf("interrupted after %d steps: %v is still allocated after the reboot", steps, got)
		}
	}
}

func TestProcessStart(t *testing.T) {
	t.Parallel()
	start, err := ProcessStart()
	if age := Uptime() - start; err != nil || age < 0 || age > time.Hour {
		t.Errorf("this process started %s ago, %v", age, err)
	}
}

func TestGC(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	d := directory(dir + "/net")
	for _, id := range []string{"valid", "gone", "otherif"} {
		allocate(t, dir, Options{}, Owner{id, "eth0"}, sets)
	}
	mustWrite(t, d.file(addr("10.1.0.50")), "validold")
	mustWrite(t, d.file(addr("10.1.0.51")), "goneold")
	mustWrite(t, d.file(addr("10.1.0.52")), "foreigngone\r\neth0")
	mustWrite(t, d.file(addr("10.1.0.53")), "")
	time.Sleep(20 * time.Millisecond) // more than one tick of the file timestamps' clock
	began := Uptime()
	time.Sleep(20 * time.Millisecond)
	allocate(t, dir, Options{}, Owner{"young", "eth0"}, sets)
	mustWrite(t, d.file(addr("10.1.0.60")), "foreignyoung\r\neth0")
	valid := []Owner{{"valid", "eth0"}, {"validold", "eth7"}, {"otherif", "eth1"}}
	with(t, dir, Options{}, func(s *Store) {
		freed, err := s.GC(valid, began)
		if err != nil {
			t.Fatal(err)
		}
		if len(freed) != 5 {
			t.Errorf("freed %v", freed)
		}
	})
	var left []string
	for _, o := range held(t, dir) {
		left = append(left, o.ContainerID)
	}
	slices.Sort(left)
	if want := []string{"foreignyoung", "valid", "validold", "young"}; !slices.Equal(left, want) {
		t.Errorf("%q are left, want %q", left, want)
	}
	consistent(t, dir)
}
