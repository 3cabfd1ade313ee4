package ipam

import (
	"testing"
	"time"
)

// TestGCAfterInterruptedAllocation checks that GC frees the address of an interrupted allocation, even if it first has
// to rebuild the index.
func TestGCAfterInterruptedAllocation(t *testing.T) {
	t.Parallel()
	for steps := range 5 {
		dir := t.TempDir()
		with(t, dir, Options{}, func(s *Store) { interruptAllocation(t, s, Owner{"cut", "eth0"}, steps) })
		time.Sleep(time.Millisecond)
		began := Uptime()
		with(t, dir, Options{}, func(s *Store) {
			if _, err := s.GC(nil, began); err != nil {
				t.Fatal(err)
			}
		})
		if got := held(t, dir); len(got) > 0 {
			t.Errorf("interrupted after %d steps: GC leaves %v", steps, got)
		}
	}
}

// TestGCOfDamagedFiles checks that GC frees an address whose file was damaged in place, which the index does not
// notice. An address that a valid container has taken over stays.
func TestGCOfDamagedFiles(t *testing.T) {
	t.Parallel()
	dir, sets := t.TempDir(), setOf(t, "10.1.0.0/24")
	for _, id := range []string{"a", "b", "c"} {
		allocate(t, dir, Options{}, Owner{id, "eth0"}, sets)
	}
	d := directory(dir + "/net")
	mustWrite(t, d.file(addr("10.1.0.2")), "")
	mustWrite(t, d.file(addr("10.1.0.3")), "valid\r\neth0")
	time.Sleep(20 * time.Millisecond) // more than one tick of the file timestamps' clock
	with(t, dir, Options{}, func(s *Store) {
		freed, err := s.GC([]Owner{{"valid", "eth0"}}, Uptime())
		if err != nil || len(freed) != 2 {
			t.Errorf("freed %v, %v", freed, err)
		}
	})
	consistent(t, dir)
}
