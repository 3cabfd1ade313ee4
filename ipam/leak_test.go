package ipam

import (
	"testing"
	"time"
)

// TestCutOffThenGC: a GC that comes after an allocation was cut off frees its
// address, also when it has to build the index first.
func TestCutOffThenGC(t *testing.T) {
	t.Parallel()
	for steps := range 5 {
		dir := t.TempDir()
		with(t, dir, Options{}, func(s *Store) { cutOff(t, s, Owner{"cut", "eth0"}, steps) })
		time.Sleep(time.Millisecond)
		began := Uptime()
		with(t, dir, Options{}, func(s *Store) {
			if _, err := s.GC(nil, began); err != nil {
				t.Fatal(err)
			}
		})
		if got := held(t, dir); len(got) > 0 {
			t.Errorf("cut off after %d steps, GC leaves %v", steps, got)
		}
	}
}
