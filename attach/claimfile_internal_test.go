package attach

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestClaimsRewritten checks that a file with many ended claims becomes shorter, and that its living claims survive a kill
// between the two steps: what was written is followed by the rest of the old lines.
func TestClaimsRewritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tcp-80")
	old := strings.Repeat("#92.0.2.9 fairlead net gone eth0\n", maxEnded+1) + "192.0.2.1 fairlead net c1 eth0\n"
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(old); err != nil {
		t.Fatal(err)
	}
	list, err := readClaims(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := list.add(f, []claim{{hostIP: "192.0.2.2", tag: "fairlead net c2 eth0"}}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "192.0.2.1 fairlead net c1 eth0\n192.0.2.2 fairlead net c2 eth0\n"
	if string(whole) != want {
		t.Errorf("the file has %q, want %q", whole, want)
	}
	if err := os.WriteFile(path, []byte(want+old[len(want):]), 0o600); err != nil {
		t.Fatal(err)
	}
	killed, err := readClaims(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"fairlead net c1 eth0", "fairlead net c2 eth0"} {
		if !slices.ContainsFunc(killed.claims, func(c claim) bool { return c.tag == tag }) {
			t.Errorf("after a kill, the claim of %s is lost: %v", tag, killed.claims)
		}
	}
}
