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
	Ratio   float64        `json:"timesTheFloor"`   // of fast rounds: both sides' first tenth, the best of all runs

	ours, floor float64 // ms, of that
}

const (
	recordFile = "testdata/regression.json"
	tolerance  = 1.15
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

// The main cases cost no more than they did: system calls, netlink messages, and
// times as multiples of the floor, which is measured in turn. UPDATE=1 takes
// what they cost now for what they may.
func TestRegression(t *testing.T) {
	programs := buildPrograms(t)
	have := map[string]record{}
	for _, c := range mainCases() {
		t.Run("count "+c.name, func(t *testing.T) {
			for verb, calls := range countCase(t, programs, c) {
				messages := calls[netlinkMessages]
				delete(calls, netlinkMessages)
				have[c.name+" "+verb] = record{Calls: calls, Netlink: messages}
			}
		})
	}
	if os.Getenv("UPDATE") != "" {
		for range 4 {
			ratios(t, programs, have)
		}
		update(t, have)
		return
	}
	want := committed(t)
	for name, msg := range losses(have, want, callLosses) {
		t.Errorf("%s: %s\n(if that has to be: UPDATE=1 go test ./bench -run TestRegression)", name, msg)
	}
	// Another program may keep the machine busy for a while; what each side can do
	// comes out with time, and a true loss stays.
	var slow map[string]string
	for range 8 {
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

func callLosses(have, want record) string {
	var msgs []string
	if h, w := total(have.Calls), total(want.Calls); float64(h) > tolerance*float64(w) {
		msgs = append(msgs, fmt.Sprintf("%d system calls, %d before:%s", h, w, more(have.Calls, want.Calls)))
	}
	if float64(have.Netlink) > tolerance*float64(want.Netlink) {
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
	if have.Ratio > tolerance*want.Ratio {
		return fmt.Sprintf("%.2f times the floor, %.2f before", have.Ratio, want.Ratio)
	}
	return ""
}

// ratios measures by the benchmark itself, and keeps the least so far.
func ratios(t *testing.T, programs string, have map[string]record) {
	t.Helper()
	names := make([]string, 0, len(mainCases()))
	for _, c := range mainCases() {
		names = append(names, regexpOf(c))
	}
	r := runBench(t, programs, "-case", strings.Join(names, "|"), "-sides", ours+";"+figures.Floor, "-rounds", "20", "-limit", "4s", "-memory=false")
	for _, row := range r.Rows {
		name := row.Case + " " + row.Verb
		rec, ok := have[name]
		if !ok || row.Floor == nil {
			continue
		}
		rec.ours, rec.floor = least(rec.ours, row.Ours.P10), least(rec.floor, row.Floor.P10)
		rec.Ratio = math.Round(100*rec.ours/rec.floor) / 100
		have[name] = rec
	}
}

// least is the smaller of what there was and what is, if there was anything.
func least(was, is float64) float64 {
	if was == 0 {
		return is
	}
	return min(was, is)
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
