package backend_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
)

// TestKeys checks that a key is created once, rotated in two steps, and never readable by others.
func TestKeys(t *testing.T) {
	t.Parallel()
	k := backend.Keys{File: filepath.Join(t.TempDir(), "state", "wireguard.key")}
	const day = 24 * time.Hour
	now := time.Now()
	step := func(name string, after, every time.Duration) (public, previous string) {
		t.Helper()
		public, previous, err := k.Rotate(now.Add(after), every)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if st, err := os.Stat(k.File); err != nil || st.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", name, st.Mode(), err)
		}
		return public, previous
	}
	first, none := step("first", 0, day)
	if len(first) != 44 || none != "" {
		t.Fatalf("%q, %q", first, none)
	}
	if again, previous := step("again", time.Hour, day); again != first || previous != "" {
		t.Errorf("an hour later it is %q, %q", again, previous)
	}
	if never, _ := step("never", 1000*day, 0); never != first {
		t.Error("a key that is never to be turned is another")
	}
	secret, _ := os.ReadFile(k.File)
	next, previous := step("a day later", day+time.Second, day)
	if next == first || previous != first {
		t.Errorf("published %q and %q, the first was %q", next, previous, first)
	}
	if still, _ := os.ReadFile(k.File); string(still) != string(secret) {
		t.Error("the device would have the next key before peers know it")
	}
	if a, b := step("at once again", time.Second, day); a != next || b != first {
		t.Errorf("at once again %q and %q", a, b)
	}
	// The next key's age is its file's modification time, which is now: the test's clock does not affect it.
	if a, b := step("after the grace", backend.Grace+time.Second, day); a != next || b != "" {
		t.Errorf("after the grace %q and %q, want %q alone", a, b, next)
	}
	if used, _ := os.ReadFile(k.File); string(used) == string(secret) {
		t.Error("the device has the old key still")
	}
}

// TestUnpublishedKey checks that a node keeps its key while the store is away: its peers do not know the next one.
func TestUnpublishedKey(t *testing.T) {
	t.Parallel()
	file, stored := filepath.Join(t.TempDir(), "wireguard.key"), ""
	k := backend.Keys{File: file, Published: func(public string) bool { return public == stored }}
	now := time.Now()
	turn := func(after time.Duration) (public, previous string) {
		t.Helper()
		public, previous, err := k.Rotate(now.Add(after), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return public, previous
	}
	first, _ := turn(0)
	next, _ := turn(time.Hour + time.Second)
	for _, after := range []time.Duration{2 * time.Hour, 3 * time.Hour} {
		if public, previous := turn(after); public != next || previous != first {
			t.Fatalf("the store is away: %q and %q, want %q and %q", public, previous, next, first)
		}
	}
	stored = next
	if _, previous := turn(3*time.Hour + time.Second); previous != first {
		t.Error("the device has the next key as soon as the store has it")
	}
	if public, previous := turn(3*time.Hour + backend.Grace); public != next || previous != "" {
		t.Errorf("after the grace: %q and %q, want %q alone", public, previous, next)
	}
}

// TestKeyClock checks that setting the clock back by a year does not extend a key's life by that year.
func TestKeyClock(t *testing.T) {
	t.Parallel()
	k := backend.Keys{File: filepath.Join(t.TempDir(), "wireguard.key")}
	const day = 24 * time.Hour
	last := time.Now().Add(-365 * day)
	var rotating []bool
	for _, at := range []time.Time{time.Now(), last, last.Add(day / 2), last.Add(day + time.Second)} {
		_, previous, err := k.Rotate(at, day)
		if err != nil {
			t.Fatal(err)
		}
		rotating = append(rotating, previous != "")
	}
	if want := []bool{false, false, false, true}; !slices.Equal(rotating, want) {
		t.Errorf("the key is being turned: %v, want %v", rotating, want)
	}
}

func TestDamagedKeyFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := backend.Keys{File: file}.Rotate(time.Now(), 0)
	if err == nil || !strings.Contains(err.Error(), "remove it") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// TestFailedRotation checks that a node keeps its key when the next one cannot be written.
func TestFailedRotation(t *testing.T) {
	t.Parallel()
	k := backend.Keys{File: filepath.Join(t.TempDir(), "wireguard.key")}
	first, _, err := k.Rotate(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("missing", k.File+".next"); err != nil { // the file cannot be created, as on a full disk
		t.Fatal(err)
	}
	if public, previous, err := k.Rotate(time.Now().Add(time.Hour), time.Hour); public != first || previous != "" || err == nil {
		t.Errorf("published %q and %q, the first was %q: %v, want an error", public, previous, first, err)
	}
}
