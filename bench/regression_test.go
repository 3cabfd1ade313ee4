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

// record is what one operation of a main case costs: nothing that depends on
// how fast the machine is.
type record struct {
	Calls   map[string]int `json:"systemCalls"`     // those of Go's runtime apart
	Netlink int            `json:"netlinkMessages"` // sent
	Ratio   float64        `json:"timesTheFloor"`   // see ratios

	tries []float64
}

const (
	recordFile = "testdata/regression.json"
	tolerance  = 1.15
	tries      = 6
)

// mainCases are those that are watched.
func mainCases() (list []benchCase) {
	for _, c := range cases(true) {
		if c.title() == groupHeld+": "+heldBy(0) ||
			c.group == groupLists && slices.Contains([]string{plainName, masqNFTName, "bridge, portmap", chainName}, c.name) {
			list = append(list, c)
		}
	}
	return list
}

// sidesOf are those of ours that are watched in a case.
func sidesOf(c benchCase) []string {
	if c.name == chainName {
		return []string{ours, fused}
	}
	return []string{ours}
}

// The main cases cost no more than they did: system calls, netlink messages, and
// times as multiples of the floor, which is measured in turn. UPDATE=1 takes
// what they cost now for what they may.
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
		for range tries {
			ratios(t, programs, have)
		}
		for name, rec := range have {
			rec.Ratio = figures.Median(rec.tries)
			have[name] = rec
		}
		update(t, have)
		return
	}
	want := committed(t)
	for name, msg := range losses(have, want, callLosses) {
		t.Errorf("%s: %s\n(if that has to be: UPDATE=1 go test ./bench -run TestRegression)", name, msg)
	}
	// Other tests keep the machine busy meanwhile: what is lost once may be noise,
	// what is lost every time is not.
	var slow map[string]string
	for range tries {
		ratios(t, programs, have)
		if slow = losses(have, want, ratioLosses); len(slow) == 0 {
			break
		}
		t.Logf("again: %v", slow)
	}
	for name, msg := range slow {
		t.Errorf("%s: %s\n(if that has to be, or this machine's kernel is that different: UPDATE=1 go test ./bench -run TestRegression)", name, msg)
	}
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

// losses are what is lost, by operation; one that is not in both is one.
func losses(have, want map[string]record, compare func(have, want record) string) map[string]string {
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

// lost tells whether a figure is over what is tolerated, not counting what floating point adds.
func lost(have, want float64) bool { return have > tolerance*want+1e-9 }

func callLosses(have, want record) string {
	var msgs []string
	if h, w := total(have.Calls), total(want.Calls); lost(float64(h), float64(w)) {
		msgs = append(msgs, fmt.Sprintf("%d system calls, %d before:%s", h, w, more(have.Calls, want.Calls)))
	}
	if lost(float64(have.Netlink), float64(want.Netlink)) {
		msgs = append(msgs, fmt.Sprintf("%d netlink messages, %d before", have.Netlink, want.Netlink))
	}
	return strings.Join(msgs, "; ")
}

// more says of which calls there are more.
func more(have, want map[string]int) (text string) {
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if have[name] > want[name] {
			text += fmt.Sprintf(" %s %d (%d)", name, have[name], want[name])
		}
	}
	return text
}

func ratioLosses(have, want record) string {
	if lost(have.Ratio, want.Ratio) {
		return fmt.Sprintf("%.2f times the floor, %.2f before", have.Ratio, want.Ratio)
	}
	return ""
}

// ratios measures by the benchmark itself: the median of pairs of a round of ours
// and one of the floor with as many processes, which a busy machine slows down
// alike. It keeps the least so far.
func ratios(t *testing.T, programs string, have map[string]record) {
	t.Helper()
	names := make([]string, 0, len(mainCases()))
	for _, c := range mainCases() {
		names = append(names, regexpOf(c))
	}
	r := runBench(t, programs, "-case", strings.Join(names, "|"), "-sides", strings.Join([]string{ours, fused, figures.Floor, figures.EachEmpty}, ";"), "-rounds", "20", "-limit", "3s", "-memory=false")
	for _, row := range r.Rows {
		name := row.Case + " " + row.Verb + ", " + row.By
		rec, ok := have[name]
		over := row.OverEach
		if row.By == fused {
			over = row.OverFloor
		}
		if !ok || over == nil {
			continue
		}
		now := math.Round(100*over.Median) / 100
		rec.tries = append(rec.tries, now)
		rec.Ratio = slices.Min(rec.tries)
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

// asBench makes the test binary the benchmark itself.
const asBench = "FAIRLEAD_BENCH_MAIN"

func benchCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Dir = ".." // where the project is
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

// regexpOf matches a case's title and no other.
func regexpOf(c benchCase) string { return "^" + regexp.QuoteMeta(c.title()) + "$" }

// What is lost is found, each thing by itself, and what is within the tolerance is not.
func TestLosses(t *testing.T) {
	t.Parallel()
	want := map[string]record{"c ADD": {Calls: map[string]int{"openat": 60, "read": 40}, Netlink: 20, Ratio: 2}}
	for _, c := range []struct {
		name  string
		have  map[string]record
		calls string
		ratio string
	}{
		{"the same", want, "", ""},
		{"within", map[string]record{"c ADD": {Calls: map[string]int{"openat": 75, "read": 40}, Netlink: 23, Ratio: 2.3}}, "", ""},
		{"better", map[string]record{"c ADD": {Calls: map[string]int{"openat": 5}, Netlink: 1, Ratio: 1}}, "", ""},
		{"calls", map[string]record{"c ADD": {Calls: map[string]int{"openat": 75, "read": 40, "stat": 1}, Netlink: 20, Ratio: 2}},
			"116 system calls, 100 before: openat 75 (60) stat 1 (0)", ""},
		{"messages", map[string]record{"c ADD": {Calls: map[string]int{"read": 100}, Netlink: 24, Ratio: 2}}, "24 netlink messages, 20 before", ""},
		{"time", map[string]record{"c ADD": {Calls: map[string]int{"read": 100}, Netlink: 20, Ratio: 2.31}}, "", "2.31 times the floor, 2.00 before"},
		{"a case that is gone", nil, "is recorded, but was not measured", "is recorded, but was not measured"},
		{"another one", map[string]record{"d ADD": {}}, "is recorded, but was not measured", "is recorded, but was not measured"},
	} {
		if msg := losses(c.have, want, callLosses)["c ADD"]; msg != c.calls {
			t.Errorf("%s: %q, want %q", c.name, msg, c.calls)
		}
		if msg := losses(c.have, want, ratioLosses)["c ADD"]; msg != c.ratio {
			t.Errorf("%s: %q, want %q", c.name, msg, c.ratio)
		}
	}
	if msg := losses(map[string]record{"d ADD": {}}, want, callLosses)["d ADD"]; msg != "is not recorded" {
		t.Errorf("a case that is new: %q", msg)
	}
}
