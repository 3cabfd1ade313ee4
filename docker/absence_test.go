package docker

import (
	"testing"
	"time"
)

// TestAbsence checks that an object counts as absent only after a time in which every comparison missed it.
func TestAbsence(t *testing.T) {
	t.Parallel()
	var a absence
	const grace = time.Hour
	compare := func(objects ...string) (old []string) {
		a.begin()
		defer a.end()
		for _, o := range objects {
			if a.forAtLeast(grace, o) {
				old = append(old, o)
			}
		}
		return old
	}
	age := func(object string) { a.since[object] = a.since[object].Add(-grace) }
	if old := compare("a", "b"); old != nil {
		t.Errorf("seen for the first time: %v", old)
	}
	age("a")
	if old := compare("a", "b"); len(old) != 1 || old[0] != "a" {
		t.Errorf("after an hour: %v", old)
	}
	compare("b") // Docker knows a again
	if old := compare("a", "b"); old != nil || len(a.since) != 2 {
		t.Errorf("unknown once more: %v, %v", old, a.since)
	}
}
