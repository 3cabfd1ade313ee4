package store_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// commitsVariable names the variable with the number of transactions that the writer commits before it ends.
const commitsVariable = "FAIRLEAD_STORE_COMMITS"

// TestFileSurvivesPowerCut checks, in the system calls of a writer, that a power cut loses nothing that Commit reported.
// Before each report, the file's data and its name are on the disk. A file gets the store's name only after its data is
// on the disk, because a power cut right after the rename must not leave an empty store.
func TestFileSurvivesPowerCut(t *testing.T) {
	t.Parallel()
	const commits = 60 // some of them rewrite the file
	dir := t.TempDir()
	path, trace := filepath.Join(dir, "store"), filepath.Join(dir, "trace")
	cmd := exec.Command("strace", "-f", "-y", "-qq", "-s", "0", "-e", "signal=none", "-o", trace,
		"-e", "trace=write,pwrite64,writev,ftruncate,fsync,fdatasync,rename,renameat,renameat2,openat", os.Args[0])
	cmd.Env = append(os.Environ(), asWriter+"="+path, commitsVariable+"="+strconv.Itoa(commits))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raw, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{t: t, path: path, unsynced: map[string]bool{}}
	for _, c := range wholeCalls(string(raw)) {
		d.call(c)
	}
	if d.reports != commits || d.renames < 3 {
		t.Errorf("%d reports and %d renames: want %d and at least 3", d.reports, d.renames, commits)
	}
}

// disk tells what a power cut would lose.
type disk struct {
	t        *testing.T
	path     string          // of the store
	unsynced map[string]bool // files whose data is not on the disk
	renamed  bool            // the store's new name is not on the disk

	reports, renames int
}

// fdPath matches the path of a call's file descriptor, as strace -y writes it.
var fdPath = regexp.MustCompile(`^\w+\(\d+<([^>]*)>`)

// call applies a system call. It fails the test at a report of something that a power cut would lose.
func (d *disk) call(c string) {
	name, _, _ := strings.Cut(c, "(")
	file := ""
	if m := fdPath.FindStringSubmatch(c); m != nil {
		file = m[1]
	}
	switch name {
	case "write", "pwrite64", "writev", "ftruncate":
		if strings.HasPrefix(c, "write(1<") {
			d.report()
		}
		d.unsynced[file] = true
	case "openat":
		if strings.Contains(c, `"`+d.path+`.new"`) {
			d.unsynced[d.path+".new"] = true
		}
	case "fsync", "fdatasync":
		delete(d.unsynced, file)
		if file == filepath.Dir(d.path) {
			d.renamed = false
		}
	case "rename", "renameat", "renameat2":
		if !strings.Contains(c, `"`+d.path+`"`) {
			return
		}
		if d.unsynced[d.path+".new"] {
			d.t.Errorf("the store is replaced by a file that is not on the disk: %s", c)
		}
		delete(d.unsynced, d.path)
		d.renamed = true
		d.renames++
	}
}

func (d *disk) report() {
	d.reports++
	if d.unsynced[d.path] {
		d.t.Errorf("transaction %d is reported before its data is on the disk", d.reports)
	}
	if d.renamed {
		d.t.Errorf("transaction %d is reported before the file's name is on the disk", d.reports)
	}
}

// wholeCalls returns the calls in the order in which they began. strace splits a call if another thread prints meanwhile.
func wholeCalls(trace string) (calls []string) {
	for line := range strings.Lines(trace) {
		_, c, ok := strings.Cut(strings.TrimSpace(line), " ")
		c = strings.TrimSpace(c)
		if ok && !strings.HasPrefix(c, "<... ") && !strings.HasPrefix(c, "+++") {
			calls = append(calls, c)
		}
	}
	return calls
}
