package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/bench/figures"
)

// record is the cost of one operation of a main case, in figures that do not depend on the machine's speed.
type record struct {
	Calls   map[string]int `json:"systemCalls"`     // without those of Go's runtime
	Netlink int            `json:"netlinkMessages"` // messages sent
	CPU     float64        `json:"timesTheFloorsCPU"`
	Ratio   float64        `json:"timesTheFloor"` // see ratios

	cpus, tries []float64
}

const (
	recordFile = "testdata/regression.json"
	tolerance  = 1.15
	// The kernel waits in some operations, for a time that depends on the machine and not on us: DEL took 0.9 times the
	// floor on one machine, and 1.4 times on another. Only CPU times have the same ratio everywhere.
	timeTolerance = 1.7
	tries         = 20 // of the cases that seem slower
)

// mainCases returns the cases that the test covers.
func mainCases() (list []benchCase) {
	for _, c := range cases(true) {
		if c.title() == groupHeld+": "+heldBy(0) ||
			c.group == groupLists && slices.Contains([]string{plainName, masqNFTName, "bridge, portmap", chainName}, c.name) {
			list = append(list, c)
		}
	}
	return list
}

// sidesOf returns the sides of Fairlead that the test covers in a case.
func sidesOf(c benchCase) []string {
	if c.name == chainName {
		return []string{ours, fused}
	}
	return []string{ours}
}

// TestRegression checks that the main cases cost no more than recorded. It compares system calls, netlink messages, and
// times and CPU times as multiples of the floor, measured in turn. UPDATE=1 records the current cost.
func TestRegression(t *testing.T) {
	programs := buildPrograms(t)
	have := map[string]record{}
	for _, c := range mainCases() {
		for _, by := range sidesOf(c) {
			t.Run("count "+c.name+", "+by, func(t *testing.T) {
				for verb, calls := range countCase(t, programs, c, by == fused) {
					messages := calls[netlinkMessages]
					delete(calls, netlinkMessages)
					have[c.name+" "+verb+", "+by] = record{Calls: calls, Netlink: messages}
				}
			})
		}
	}
	if os.Getenv("UPDATE") != "" {
		for range 6 {
			ratios(t, programs, mainCases(), have)
		}
		for name, rec := range have {
			rec.Ratio, rec.CPU = figures.Median(rec.tries), figures.Median(rec.cpus)
			have[name] = rec
		}
		update(t, have)
		return
	}
	want := committed(t)
	for name, msg := range regressions(have, want, callLosses) {
		t.Errorf("%s: %s\n(if this is intended: UPDATE=1 go test ./bench -run TestRegression)", name, msg)
	}
	// Other tests keep the machine busy. A loss in one run may be noise, but a loss in every run is not.
	var slow map[string]string
	again := mainCases()
	for range tries {
		ratios(t, programs, again, have)
		if slow = regressions(have, want, ratioLosses); len(slow) == 0 {
			break
		}
		t.Logf("again: %v", slow)
		if again = slices.DeleteFunc(again, func(c benchCase) bool { return !belongs(c, slow) }); len(again) == 0 {
			break // the loss is about a case that does not exist any more
		}
	}
	for name, msg := range slow {
		t.Errorf("%s: %s\n(if this is intended, or this machine's kernel differs: UPDATE=1 go test ./bench -run TestRegression)", name, msg)
	}
}

// belongs reports whether any of the operations belongs to a case.
func belongs(c benchCase, names map[string]string) bool {
	for name := range names {
		if strings.HasPrefix(name, c.name+" ") {
			return true
		}
	}
	return false
}

func committed(t *testing.T) (want map[string]record) {
	raw, err := os.ReadFile(recordFile)
	if err == nil {
		err = json.Unmarshal(raw, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return want
}

func update(t *testing.T, have map[string]record) {
	raw, err := json.MarshalIndent(have, "", "  ")
	if err == nil {
		err = errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(recordFile, append(raw, '\n'), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// regressions returns the regressions by operation. An operation that only one map contains is a regression, too.
func regressions(have, want map[string]record, compare func(have, want record) string) map[string]string {
	out := map[string]string{}
	for name := range maps.Keys(want) {
		if _, ok := have[name]; !ok {
			out[name] = "is recorded, but was not measured"
		}
	}
	for name, h := range have {
		if w, ok := want[name]; !ok {
			out[name] = "is not recorded"
		} else if msg := compare(h, w); msg != "" {
			out[name] = msg
		}
	}
	return out
}

// exceeds reports whether a figure exceeds a tolerance, apart from rounding.
func exceeds(have, want, tolerance float64) bool { return have > tolerance*want+1e-9 }

func callLosses(have, want record) string {
	var msgs []string
	if h, w := total(have.Calls), total(want.Calls); exceeds(float64(h), float64(w), tolerance) {
		msgs = append(msgs, fmt.Sprintf("%d system calls, %d before:%s", h, w, increased(have.Calls, want.Calls)))
	}
	if exceeds(float64(have.Netlink), float64(want.Netlink), tolerance) {
		msgs = append(msgs, fmt.Sprintf("%d netlink messages, %d before", have.Netlink, want.Netlink))
	}
	return strings.Join(msgs, "; ")
}

// increased returns the calls that became more frequent.
func increased(have, want map[string]int) (text string) {
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if have[name] > want[name] {
			text += fmt.Sprintf(" %s %d (%d)", name, have[name], want[name])
		}
	}
	return text
}

func ratioLosses(have, want record) string {
	var msgs []string
	if exceeds(have.CPU, want.CPU, tolerance) {
		msgs = append(msgs, fmt.Sprintf("%.2f times the floor's CPU time, %.2f before", have.CPU, want.CPU))
	}
	if exceeds(have.Ratio, want.Ratio, timeTolerance) {
		msgs = append(msgs, fmt.Sprintf("%.2f times the floor, %.2f before", have.Ratio, want.Ratio))
	}
	return strings.Join(msgs, "; ")
}

// ratios runs the benchmark and stores the smallest ratios so far. A ratio is the median over pairs of a round of
// Fairlead and a round of the floor with as many processes. A busy machine slows both down alike.
func ratios(t *testing.T, programs string, list []benchCase, have map[string]record) {
	t.Helper()
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = regexpOf(c)
	}
	r := runBench(t, programs, "-case", strings.Join(names, "|"), "-sides", strings.Join([]string{ours, fused, figures.Floor, figures.EachEmpty}, ";"), "-rounds", "20", "-limit", "3s", "-memory=false")
	for _, row := range r.Rows {
		name := row.Case + " " + row.Verb + ", " + row.By
		rec, ok := have[name]
		over, cpu := row.OverEach, row.EachCPU
		if row.By == fused {
			over, cpu = row.OverFloor, row.FloorCPU
		}
		if !ok || over == nil || cpu == nil {
			continue
		}
		rec.tries = append(rec.tries, math.Round(100*over.Median)/100)
		rec.cpus = append(rec.cpus, math.Round(100*cpu.Median)/100)
		rec.Ratio, rec.CPU = slices.Min(rec.tries), slices.Min(rec.cpus)
		have[name] = rec
	}
}

// buildPrograms builds every side's programs.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := benchCommand("-build", "-programs", dir).CombinedOutput(); err != nil {
		t.Fatalf("bench -build: %v\n%s", err, out)
	}
	return dir
}

// runBench runs the benchmark and returns its report.
func runBench(t *testing.T, programs string, args ...string) figures.Report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.json")
	if out, err := benchCommand(append(args, "-programs", programs, "-json", file)...).CombinedOutput(); err != nil {
		t.Fatalf("bench %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	r, err := figures.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// asBench makes the test binary run as the benchmark.
const asBench = "FAIRLEAD_BENCH_MAIN"

func benchCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Dir = ".." // the project's root
	cmd.Env = append(os.Environ(), asBench+"=1")
	return cmd
}

func TestMain(m *testing.M) {
	if os.Getenv(asBench) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// regexpOf returns an expression that matches only the case's title.
func regexpOf(c benchCase) string { return "^" + regexp.QuoteMeta(c.title()) + "$" }

// TestRegressions checks that each kind of regression is found, and that nothing within the tolerance is reported.
func TestRegressions(t *testing.T) {
	t.Parallel()
	want := map[string]record{"c ADD": {Calls: map[string]int{"openat": 60, "read": 40}, Netlink: 20, Ratio: 2, CPU: 3}}
	for _, c := range []struct {
		name  string
		have  map[string]record
		calls string
		ratio string
	}{
		{"the same", want, "", ""},
		{"within", map[string]record{"c ADD": {Calls: map[string]int{"openat": 75, "read": 40}, Netlink: 23, Ratio: 3.4, CPU: 3.45}}, "", ""},
		{"better", map[string]record{"c ADD": {Calls: map[string]int{"openat": 5}, Netlink: 1, Ratio: 1}}, "", ""},
		{"calls", map[string]record{"c ADD": {Calls: map[string]int{"openat": 75, "read": 40, "stat": 1}, Netlink: 20, Ratio: 2}},
			"116 system calls, 100 before: openat 75 (60) stat 1 (0)", ""},
		{"messages", map[string]record{"c ADD": {Calls: map[string]int{"read": 100}, Netlink: 24, Ratio: 2}}, "24 netlink messages, 20 before", ""},
		{"time", map[string]record{"c ADD": {Calls: map[string]int{"read": 100}, Netlink: 20, Ratio: 3.41}}, "", "3.41 times the floor, 2.00 before"},
		{"CPU time", map[string]record{"c ADD": {Calls: map[string]int{"read": 100}, Netlink: 20, CPU: 3.46}}, "", "3.46 times the floor's CPU time, 3.00 before"},
		{"a removed case", nil, "is recorded, but was not measured", "is recorded, but was not measured"},
		{"another one", map[string]record{"d ADD": {}}, "is recorded, but was not measured", "is recorded, but was not measured"},
	} {
		if msg := regressions(c.have, want, callLosses)["c ADD"]; msg != c.calls {
			t.Errorf("%s: %q, want %q", c.name, msg, c.calls)
		}
		if msg := regressions(c.have, want, ratioLosses)["c ADD"]; msg != c.ratio {
			t.Errorf("%s: %q, want %q", c.name, msg, c.ratio)
		}
	}
	if msg := regressions(map[string]record{"d ADD": {}}, want, callLosses)["d ADD"]; msg != "is not recorded" {
		t.Errorf("a new case: %q", msg)
	}
}
