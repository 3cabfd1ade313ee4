package crash

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// The first variable is the file for the results of the full run, with one tally per line. The second is the time after
// which TestAllPoints starts no new scene (a Go duration). TestAllPoints continues where the last run ended.
const (
	resultsVariable = "FAIRLEAD_CRASH"
	timeVariable    = "FAIRLEAD_CRASH_TIME"
)

// result is one line of the results: a tally and its origin.
type result struct {
	tally
	Commit  string
	Kernel  string
	Date    string
	Seconds float64 // of the whole operation
}

// TestAllPoints plays every point of every operation that the results file lacks. It runs only when that file is set,
// because it takes most of an hour.
func TestAllPoints(t *testing.T) {
	file := kerneltest.OptIn(t, resultsVariable)
	have, err := readResults(file)
	if err == nil {
		err = sameCommit(have, commit())
	}
	if err != nil {
		t.Fatal(err)
	}
	limit, err := time.ParseDuration(os.Getenv(timeVariable))
	if err != nil {
		limit = 24 * time.Hour
	}
	done := map[string]bool{}
	for _, r := range have {
		done[r.Scene+" "+r.Verb] = true
	}
	start := time.Now()
	for _, s := range scenes() {
		for _, verb := range []string{"ADD", "DEL"} {
			if done[s.name+" "+verb] || !selected(s.name, "FAIRLEAD_SCENE") || time.Since(start) > limit {
				continue
			}
			t.Run(s.name+" "+verb, func(t *testing.T) {
				kerneltest.Needs(t, s.needs...)
				playAll(t, &s, verb, file)
			})
		}
	}
}

// playAll plays every point of an operation and appends the results to the file.
func playAll(t *testing.T, s *scene, verb, file string) {
	start := time.Now()
	tallies := sweep(t, s, workers(), func(all []point) []point {
		all = slices.DeleteFunc(all, func(p point) bool { return p.verb != verb })
		if os.Getenv("FAIRLEAD_SAMPLE") != "" { // in a VM everything takes ten times as long
			return everyKth(all, seed(t))
		}
		return all
	})
	for _, c := range tallies {
		t.Logf("%s %s %s: %d points, %d survived, %d not reached", s.name, c.Verb, c.Kind, c.Points, c.Survived, c.NotReached)
		if err := appendResult(file, result{c, commit(), kernelRelease(), time.Now().UTC().Format(time.DateOnly), time.Since(start).Seconds()}); err != nil {
			t.Error(err)
		}
	}
}

// workers returns the number of machines that play a scene concurrently. They spend most of the time waiting for the
// kernel.
func workers() int { return 3 * runtime.NumCPU() }

// commit returns the commit that is tested, with a hash of uncommitted changes to Go files. FAIRLEAD_COMMIT overrides it
// for a virtual machine without git.
func commit() string {
	if c := os.Getenv("FAIRLEAD_COMMIT"); c != "" {
		return c
	}
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	name := strings.TrimSpace(string(head))
	if diff, err := exec.Command("git", "diff", "HEAD", "--", ":/*.go", ":/go.mod").Output(); err != nil || len(diff) > 0 {
		name += fmt.Sprintf("+%x", sha256.Sum256(diff))[:13]
	}
	return name
}

// sameCommit returns an error unless all results are of one commit. The outcome of one commit says nothing about the
// points of another one.
func sameCommit(list []result, commit string) error {
	if commit == "" {
		return errors.New("cannot determine the commit: install git, or set FAIRLEAD_COMMIT")
	}
	for _, r := range list {
		if r.Commit != commit {
			return fmt.Errorf("the results of %s %s are of commit %q, and this is commit %q: remove the file of results to start again",
				r.Scene, r.Verb, r.Commit, commit)
		}
	}
	return nil
}

func kernelRelease() string {
	raw, err := readAt("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	release, _, _ := strings.Cut(string(raw), "-") // without the distribution's suffix
	return release
}

func readResults(file string) (out []result, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, lines.Err()
}

func appendResult(file string, r result) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	return errors.Join(err, f.Close())
}
