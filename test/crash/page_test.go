package crash

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The table of the full run is between these two lines of docs/reliability.md.
const (
	pageFile  = "../../docs/reliability.md"
	pageBegin = "<!-- points: make crash writes this -->\n"
	pageEnd   = "<!-- end of points -->\n"
)

// TestPointsPage writes the results of the full run into the page (UPDATE=1). Without UPDATE it checks that every point
// in the page's table survived.
func TestPointsPage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(raw), pageBegin)
	table, after, ok2 := strings.Cut(rest, pageEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no markers for the table", pageFile)
	}
	if os.Getenv("UPDATE") != "" && os.Getenv(resultsVariable) != "" {
		list, err := readResults(os.Getenv(resultsVariable))
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			t.Fatalf("%s has no results", os.Getenv(resultsVariable))
		}
		if err := sameCommit(list, list[0].Commit); err != nil {
			t.Fatal(err)
		}
		table = page(list)
		if err := os.WriteFile(pageFile, []byte(before+pageBegin+table+pageEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(table, "all of them survived") {
		t.Errorf("%s: the table does not state that all points survived", pageFile)
	}
}

// page returns the table as Markdown. All results are of one commit.
func page(list []result) string {
	type key struct{ scene, verb string }
	rows, order := map[key]map[kind][2]int{}, []key{}
	points, survived, notMet := 0, 0, 0
	where, last, seconds := map[string]bool{}, "", map[key]float64{}
	for _, r := range list {
		k := key{r.Scene, r.Verb}
		if rows[k] == nil {
			rows[k] = map[kind][2]int{}
			order = append(order, k)
		}
		n := rows[k][r.Kind]
		rows[k][r.Kind] = [2]int{n[0] + r.Survived, n[1] + r.Points}
		points, survived, notMet = points+r.Points, survived+r.Survived, notMet+r.NotReached
		where[r.Kernel], last, seconds[k] = true, max(last, r.Date), r.Seconds
	}
	total := 0.0
	for _, s := range seconds {
		total += s
	}
	words := "all of them survived"
	if survived < points {
		words = fmt.Sprintf("%d of them survived", survived)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "`make crash` on %s, commit %.12s, a machine with %d processors; kernels %s; %.0f minutes of work: **%d points, %s**. (%d more were not reached, because the order of threads differed from the run that listed the calls.)\n\n",
		last, list[0].Commit, runtime.NumCPU(), strings.Join(sortedKeys(where), ", "), total/60, points, words, notMet)
	b.WriteString("| scene | operation | killed | error | short write | cut write, killed | clock jumps | points | survived |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, k := range order {
		sum := [2]int{}
		fmt.Fprintf(&b, "| %s | %s |", k.scene, k.verb)
		for _, what := range kinds() {
			n := rows[k][what]
			sum[0], sum[1] = sum[0]+n[0], sum[1]+n[1]
			fmt.Fprintf(&b, " %d |", n[1])
		}
		fmt.Fprintf(&b, " %d | %d |\n", sum[1], sum[0])
	}
	return b.String()
}

func sortedKeys(m map[string]bool) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestPageText(t *testing.T) {
	t.Parallel()
	got := page([]result{
		{tally: tally{Scene: "bridge", Verb: "ADD", Kind: kindKill, Points: 3, Survived: 3}, Commit: "0123456789abcdef", Kernel: "6.18", Date: "2026-11-21", Seconds: 60},
		{tally: tally{Scene: "bridge", Verb: "ADD", Kind: kindError, Points: 2, Survived: 1, NotReached: 4}, Kernel: "6.18", Date: "2026-11-22", Seconds: 60},
	})
	for _, want := range []string{"on 2026-11-22, commit 0123456789ab,", "1 minutes of work: **5 points, 4 of them survived**", "(4 more", "| bridge | ADD | 3 | 2 | 0 | 0 | 0 | 5 | 4 |"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestSameCommit(t *testing.T) {
	t.Parallel()
	of := func(commit string) result { return result{tally: tally{Scene: "bridge", Verb: "ADD"}, Commit: commit} }
	if err := sameCommit([]result{of("a"), of("a")}, "a"); err != nil {
		t.Error(err)
	}
	for _, mixed := range [][]result{{of("a"), of("b")}, {of("b")}, {of("")}} {
		if err := sameCommit(mixed, "a"); err == nil || !strings.Contains(err.Error(), "start again") {
			t.Errorf("%v: %v", mixed, err)
		}
	}
	if err := sameCommit(nil, ""); err == nil {
		t.Error("an unknown commit is accepted")
	}
}
