package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// startVariable enables the measurement. It takes some minutes per client and needs an idle machine.
const startVariable = "FAIRLEAD_E2E_START"

const startFile = "testdata/start.json"

// startTimes are the times of one client with one set of plugins, in milliseconds.
type startTimes struct {
	Client, Version, Side  string
	Alone, Burst           []float64
	RemoveAlone, RemoveAll []float64
}

// sides returns the compared sets of plugins, in the order in which they take turns.
func sides() []string { return []string{"Fairlead", "Fairlead, fused", "reference"} }

// TestPodStart measures how long a client takes to start a pod, with each set of plugins in turn.
func TestPodStart(t *testing.T) {
	kerneltest.OptIn(t, startVariable)
	t.Setenv(allVariable, "1")
	p := build(t)
	for name, c := range clients(p) {
		t.Run(name, func(t *testing.T) { measureStart(t, p, c) })
	}
	rewritePage(t, runtimesPage, "start", startText(readTimes(t)))
}

func measureStart(t *testing.T, p programs, c func(*testing.T) client) {
	var stages []*suite
	var all []*startTimes
	for _, side := range sides() {
		s := newStartSuite(t, p, c, side)
		version, err := s.version()
		if err != nil {
			t.Fatal(err)
		}
		stages = append(stages, s)
		all = append(all, &startTimes{Client: s.name(), Version: version, Side: side})
	}
	begun := time.Now()
	for range burstSize {
		for i, s := range stages {
			start := time.Now()
			ctr := s.run(t, pod{networks: []string{network}})
			all[i].Alone = append(all[i].Alone, millisecondsSince(start))
			s.waitUntilServing(t)
			start = time.Now()
			s.remove(t, ctr)
			all[i].RemoveAlone = append(all[i].RemoveAlone, millisecondsSince(start))
		}
	}
	for round := range 2 {
		if round > 0 && time.Since(begun) > 3*time.Minute {
			break
		}
		for i, s := range stages {
			s.measureBurst(t, all[i])
		}
	}
	writeTimes(t, all)
}

func millisecondsSince(start time.Time) float64 {
	return float64(time.Since(start).Microseconds()) / 1000
}

// newStartSuite starts a client with one set of plugins, and a list that works with all of them.
func newStartSuite(t *testing.T, p programs, c func(*testing.T) client, side string) *suite {
	t.Helper()
	fuse := ""
	switch side {
	case "Fairlead, fused":
		fuse = p.fairlead
	case "reference":
		for _, name := range []string{"bridge", "host-local", "portmap", "bandwidth", "firewall", "tuning", "loopback"} {
			p.plugin = filepath.Dir(reference.Plugin(t, name))
		}
	}
	one := c(t)
	one.setPrograms(p)
	return newSuite(t, one, p, plainList(one.spec()), fuse)
}

// waitUntilServing waits until every pod serves. A process that has just started ignores the signal to end, and the
// client would wait for seconds before it kills the process.
func (s *suite) waitUntilServing(t *testing.T) {
	t.Helper()
	for _, a := range s.allocated(t, network) {
		if !strings.HasPrefix(a, firstSubnetV4) {
			continue // an IPv6 address of the same pods
		}
		kerneltest.Within(t, 10*time.Second, func() error { _, err := s.fromHost("query", "tcp", at(a, servePort)); return err })
	}
}

// measureBurst measures the time of each pod from the start of the burst, and the time to remove all pods.
func (s *suite) measureBurst(t *testing.T, f *startTimes) {
	t.Helper()
	containers, elapsed := make([]*container, burstSize), make([]float64, burstSize)
	errs := make([]error, burstSize)
	s.podCount++
	var wait sync.WaitGroup
	start := time.Now()
	for i := range burstSize {
		wait.Go(func() {
			containers[i], errs[i] = s.client.run(pod{name: fmt.Sprintf("burst-%d-%d", s.podCount, i), networks: []string{network}})
			elapsed[i] = millisecondsSince(start)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	f.Burst = append(f.Burst, elapsed...)
	s.waitUntilServing(t)
	start = time.Now()
	if err := s.removeMany(containers); err != nil {
		t.Log(err) // the reference plugins fail some of many concurrent removals
		if err := s.removeAll(); err != nil {
			t.Log(err)
		}
	}
	f.RemoveAll = append(f.RemoveAll, millisecondsSince(start))
}

func readTimes(t *testing.T) (all []*startTimes) {
	t.Helper()
	raw, err := os.ReadFile(startFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// writeTimes replaces the recorded times of the same client.
func writeTimes(t *testing.T, updates []*startTimes) {
	t.Helper()
	all := slices.DeleteFunc(readTimes(t), func(f *startTimes) bool { return f.Client == updates[0].Client })
	all = append(all, updates...)
	slices.SortStableFunc(all, func(x, y *startTimes) int { return strings.Compare(x.Client, y.Client) })
	raw, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(startFile, append(raw, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startText returns the page's section about pod starts.
func startText(all []*startTimes) string {
	var b strings.Builder
	b.WriteString("| client | plugins | one at a time, p50 | p99 | in a burst of 50, p50 | p99 | removed one at a time, p50 | p99 | 50 removed at once |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range all {
		fmt.Fprintf(&b, "| %s (%s) | %s | %s | %s | %s | %s | %s | %s | %s |\n", f.Client, f.Version, f.Side, quantile(f.Alone, 50), quantile(f.Alone, 99),
			quantile(f.Burst, 50), quantile(f.Burst, 99), quantile(f.RemoveAlone, 50), quantile(f.RemoveAlone, 99), quantile(f.RemoveAll, 50))
	}
	return b.String()
}

// quantile returns the smallest time that the given percentage of times does not exceed.
func quantile(times []float64, percent int) string {
	if len(times) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(times))
	ms := sorted[min(len(sorted)-1, (len(sorted)*percent+99)/100-1)]
	if ms >= 1000 {
		return fmt.Sprintf("%.2f s", ms/1000)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// TestStartPage checks that the page shows the recorded times.
func TestStartPage(t *testing.T) {
	t.Parallel()
	_, text, _ := pageParts(t, runtimesPage, "start")
	all := readTimes(t)
	if want := startText(all); text != want {
		t.Errorf("the page has\n%s\nthe times give\n%s", text, want)
	}
	for _, f := range all {
		if len(f.Alone) != burstSize || len(f.Burst) != burstSize && len(f.Burst) != 2*burstSize {
			t.Errorf("%s, %s: %d and %d times, want %d, and once or twice that", f.Client, f.Side, len(f.Alone), len(f.Burst), burstSize)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	times := []float64{1500}
	for i := range 49 {
		times = append(times, float64(i))
	}
	for percent, want := range map[int]string{50: "24 ms", 99: "1.50 s", 1: "0 ms", 100: "1.50 s"} {
		if got := quantile(times, percent); got != want {
			t.Errorf("p%d: %s, want %s", percent, got, want)
		}
	}
	if got := quantile(nil, 50); got != "-" {
		t.Errorf("without times: %s", got)
	}
}
