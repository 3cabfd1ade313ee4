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
)

// startVariable asks for the measurement: some minutes a client, on a machine that
// does nothing else.
const startVariable = "FAIRLEAD_E2E_START"

const startFile = "testdata/start.json"

// figures are the times of one client with one side's plugins, in milliseconds.
type figures struct {
	Client, Version, Side  string
	Alone, Burst           []float64
	RemoveAlone, RemoveAll []float64
}

// sides are whose plugins run, in the order in which they take turns.
func sides() []string { return []string{"ours", "ours, fused", "the reference's"} }

// TestPodStart measures how long a client takes to start a pod, with each side's
// plugins in turn.
func TestPodStart(t *testing.T) {
	if os.Getenv(startVariable) == "" {
		return // make e2e-start
	}
	t.Setenv(allVariable, "1")
	p := build(t)
	for name, c := range clients(p) {
		t.Run(name, func(t *testing.T) { measureStart(t, p, c) })
	}
	rewritePage(t, "start", startText(readFigures(t)))
}

func measureStart(t *testing.T, p programs, c func(*testing.T) client) {
	var stages []*stage
	var all []*figures
	for _, side := range sides() {
		s := startStage(t, p, c, side)
		version, err := s.version()
		if err != nil {
			t.Fatal(err)
		}
		stages = append(stages, s)
		all = append(all, &figures{Client: s.name(), Version: version, Side: side})
	}
	begun := time.Now()
	for range many {
		for i, s := range stages {
			start := time.Now()
			in := s.run(t, pod{networks: []string{network}})
			all[i].Alone = append(all[i].Alone, since(start))
			s.allAnswer(t)
			start = time.Now()
			s.remove(t, in)
			all[i].RemoveAlone = append(all[i].RemoveAlone, since(start))
		}
	}
	for round := range 2 {
		if round > 0 && time.Since(begun) > 3*time.Minute {
			break
		}
		for i, s := range stages {
			s.burst(t, all[i])
		}
	}
	writeFigures(t, all)
}

func since(start time.Time) float64 { return float64(time.Since(start).Microseconds()) / 1000 }

// startStage is a client with a side's plugins and a list that all sides have.
func startStage(t *testing.T, p programs, c func(*testing.T) client, side string) *stage {
	t.Helper()
	fuse := ""
	switch side {
	case "ours, fused":
		fuse = p.fuse
	case "the reference's":
		for _, name := range []string{"bridge", "host-local", "portmap", "bandwidth", "firewall", "tuning", "loopback"} {
			p.plugin = filepath.Dir(reference.Plugin(t, name))
		}
	}
	one := c(t)
	one.use(p)
	return newStage(t, one, p, plainList(one.spec()), fuse)
}

// allAnswer waits until every pod serves: a process that has not begun yet is deaf to
// the signal by which it is asked to end, and the client waits for seconds before it
// kills it.
func (s *stage) allAnswer(t *testing.T) {
	t.Helper()
	for _, a := range s.held(t, network) {
		if !strings.HasPrefix(a, rangeOfFirst) {
			continue // of IPv6: the same pods
		}
		eventually(t, 10*time.Second, func() error { _, err := s.fromHost("ask", "tcp", at(a, servePort)); return err })
	}
}

// burst times each pod of a burst from the start of all, and their removal.
func (s *stage) burst(t *testing.T, f *figures) {
	t.Helper()
	made, took := make([]*container, many), make([]float64, many)
	errs := make([]error, many)
	s.names++
	var wait sync.WaitGroup
	start := time.Now()
	for i := range many {
		wait.Go(func() {
			made[i], errs[i] = s.client.run(pod{name: fmt.Sprintf("burst-%d-%d", s.names, i), networks: []string{network}})
			took[i] = since(start)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	f.Burst = append(f.Burst, took...)
	s.allAnswer(t)
	start = time.Now()
	if err := s.removeMany(made); err != nil {
		t.Log(err) // the reference's plugins fail some when many are removed at once
		if err := s.removeAll(); err != nil {
			t.Log(err)
		}
	}
	f.RemoveAll = append(f.RemoveAll, since(start))
}

func readFigures(t *testing.T) (all []*figures) {
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

// writeFigures replaces those of the same client.
func writeFigures(t *testing.T, some []*figures) {
	t.Helper()
	all := slices.DeleteFunc(readFigures(t), func(f *figures) bool { return f.Client == some[0].Client })
	all = append(all, some...)
	slices.SortStableFunc(all, func(x, y *figures) int { return strings.Compare(x.Client, y.Client) })
	raw, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(startFile, append(raw, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startText is the part of the page about pod starts.
func startText(all []*figures) string {
	var b strings.Builder
	b.WriteString("| client | plugins | one at a time, p50 | p99 | in a burst of 50, p50 | p99 | removed one at a time, p50 | p99 | 50 removed at once |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range all {
		fmt.Fprintf(&b, "| %s (%s) | %s | %s | %s | %s | %s | %s | %s | %s |\n", f.Client, f.Version, f.Side, quantile(f.Alone, 50), quantile(f.Alone, 99),
			quantile(f.Burst, 50), quantile(f.Burst, 99), quantile(f.RemoveAlone, 50), quantile(f.RemoveAlone, 99), quantile(f.RemoveAll, 50))
	}
	return b.String()
}

// quantile is the least time that so many in a hundred do not exceed.
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

// The page says what the figures say.
func TestStartPage(t *testing.T) {
	t.Parallel()
	_, text, _ := pageParts(t, "start")
	all := readFigures(t)
	if want := startText(all); text != want {
		t.Errorf("the page has\n%s\nthe figures say\n%s", text, want)
	}
	for _, f := range all {
		if len(f.Alone) != many || len(f.Burst) != many && len(f.Burst) != 2*many {
			t.Errorf("%s, %s: %d and %d times, want %d, and once or twice that", f.Client, f.Side, len(f.Alone), len(f.Burst), many)
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
		t.Errorf("of nothing: %s", got)
	}
}
