package attach

import (
	"testing"
	"time"
)

// A stamp stays the same while records do, and differs after each change.
func TestStampChangesWithRecords(t *testing.T) {
	t.Parallel()
	d := Open(t.TempDir())
	if s := d.Stamp(); s != "" {
		t.Errorf("a directory that is not there has the stamp %q", s)
	}
	r := d.New("n", "c", "eth0", "/proc/self/ns/net")
	seen := map[string]string{}
	for _, change := range []struct {
		what string
		do   func() error
	}{
		{"written", func() error { return d.Write(r) }},
		{"replaced", func() error { return d.Write(r) }},
		{"another", func() error { return d.Write(d.New("m", "c", "eth0", "/proc/self/ns/net")) }},
		{"removed", func() error { return d.Remove(r.Owner()) }},
	} {
		began := time.Now()
		if err := change.do(); err != nil {
			t.Fatal(change.what, err)
		}
		r.Unlock()
		if s := d.Stamp(); s != "" && time.Since(began) < Tick {
			t.Errorf("%s: right after it the stamp is %q", change.what, s)
		}
		time.Sleep(2 * Tick)
		s := d.Stamp()
		if s == "" || seen[s] != "" || s != d.Stamp() {
			t.Errorf("%s: the stamp is %q, as when %q", change.what, s, seen[s])
		}
		seen[s] = change.what
	}
}
