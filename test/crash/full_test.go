package crash

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// These environment variables set the file of the full run's results, with one tally per line, and the time after which TestFull
// starts no new scene (a Go duration). TestFull continues where the last run ended.
const (
	resultsVariable = "FAIRLEAD_CRASH"
	timeVariable    = "FAIRLEAD_CRASH_TIME"
)

// result is one line of the results: a tally and its origin.
type result struct {
	tally
	Kernel  string
	Date    string
	Seconds float64 // of the whole operation
}

// TestFull plays every point of every operation that the results file lacks. It runs only when that file is set,
// because it takes most of an hour.
func TestFull(t *testing.T) {
	file := os.Getenv(resultsVariable)
	if file == "" {
		t.Log("make crash runs this")
		return
	}
	have, err := readResults(file)
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
	began := time.Now()
	for _, s := range scenes() {
		for _, verb := range []string{"ADD", "DEL"} {
			if done[s.name+" "+verb] || !only(s.name, "FAIRLEAD_SCENE") || time.Since(began) > limit {
				continue
			}
			t.Run(s.name+" "+verb, func(t *testing.T) {
				kerneltest.Needs(t, s.needs...)
				full(t, &s, verb, file)
			})
		}
	}
}

// full plays every point of an operation and appends the outcome to the file.
func full(t *testing.T, s *scene, verb, file string) {
	began := time.Now()
	tallies := sweep(t, s, workers(), func(all []point) []point {
		all = slices.DeleteFunc(all, func(p point) bool { return p.verb != verb })
		if os.Getenv("FAIRLEAD_SAMPLE") != "" { // in a guest everything takes ten times as long
			return spread(all, seed(t))
		}
		return all
	})
	for _, c := range tallies {
		t.Logf("%s %s %s: %d points, %d survived, %d not met", s.name, c.Verb, c.Kind, c.Points, c.Survived, c.NotMet)
		if err := appendResult(file, result{c, kernelRelease(), time.Now().UTC().Format(time.DateOnly), time.Since(began).Seconds()}); err != nil {
			t.Error(err)
		}
	}
}

// workers returns how many machines play a scene at once. They spend most of the time waiting for the kernel.
func workers() int { return 3 * runtime.NumCPU() }

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
