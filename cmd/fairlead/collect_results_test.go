package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestCollectResults verifies that gc removes old unreadable files of the cache. It must keep files that a runtime may
// be writing, and files of a kind that other software may understand.
func TestCollectResults(t *testing.T) {
	t.Parallel()
	s := newSite(t, "web", "db")
	const dir = "/var/lib/cni/results/"
	db := "n-" + containerID(netnspath.Dir+"/db") + "-eth0"
	must(t, os.Truncate(dir+db, 300)) // of an attachment that exists
	for name, content := range map[string]string{"n-empty-eth0": "", "n-cut-eth0": `{"kind":"cniCacheV1","conta`, "n-young-eth0": ""} {
		write(t, dir, name, content)
	}
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"n-empty-eth0", "n-cut-eth0", db} {
		must(t, os.Chtimes(dir+name, old, old))
	}
	before := s.left()
	var report gc.Report
	must(t, json.Unmarshal([]byte(s.ok("gc", "--all", "--dry-run", "--json")), &report))
	if len(report.Results) != 3 || len(report.Skipped) != 1 || report.Kept != 2 || s.left() != before {
		t.Errorf("dry run: %+v\n%s", report, kerneltest.Diff(before, s.left()))
	}
	out := s.ok("gc", "--all")
	for _, want := range []string{
		"removed " + dir + "n-empty-eth0: it cannot be read: 1:1: empty: want a JSON object\n", "removed " + dir + "n-cut-eth0: it cannot be read: ",
		"removed " + dir + db + ": it cannot", "skipped: cache file " + dir + "n-young-eth0 is corrupt: 1:1: empty: want a JSON object; it is younger than 10m0s\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	left, err := filepath.Glob(dir + "*")
	if web := dir + "n-" + containerID(netnspath.Dir+"/web") + "-eth0"; err != nil || len(left) != 2 || !strings.Contains(strings.Join(left, " "), web) {
		t.Errorf("left are %v, want that of web and the young one", left)
	}
	s.ok("del", "n", "db")
	if out := s.ok("list"); strings.Contains(out, "db") {
		t.Errorf("db is still there:\n%s", out)
	}
	write(t, dir, "n-later-eth0", `{"kind":"cniCacheV9"}`)
	must(t, os.Chtimes(dir+"n-later-eth0", old, old))
	if code, _, errs := s.fairlead("gc", "--all"); code != exitFailed || !strings.Contains(errs, `want "cniCacheV1"`) {
		t.Errorf("a file of a later kind: exit code %d, %s", code, errs)
	}
	if _, err := os.Stat(dir + "n-later-eth0"); err != nil {
		t.Error(err)
	}
}
