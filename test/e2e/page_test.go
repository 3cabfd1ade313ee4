package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	runtimesPage    = "../../docs/runtimes.md"
	conformancePage = "../../docs/kubernetes-tests.md"
)

// markers returns the lines around a generated section of the page.
func markers(part string) (begin, end string) {
	return "<!-- " + part + ": written by a test -->\n", "<!-- end of " + part + " -->\n"
}

func rewritePage(t *testing.T, page, part, text string) {
	t.Helper()
	before, _, after := pageParts(t, page, part)
	if err := os.WriteFile(page, []byte(before+text+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func pageParts(t *testing.T, page, part string) (before, text, after string) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := markers(part)
	i, j := strings.Index(string(raw), begin), strings.Index(string(raw), end)
	if i < 0 || j < i {
		t.Fatalf("%s has no section %q", page, part)
	}
	i += len(begin)
	return string(raw[:i]), string(raw[i:j]), string(raw[j:])
}

// sort sorts by client, plain lists before fused ones, and then by the order of the cases.
func (r *results) sort() {
	order := scenarios()
	at := func(row result) int {
		return slices.IndexFunc(order, func(s scenario) bool { return s.name == row.Case })
	}
	slices.SortStableFunc(r.Rows, func(x, y result) int {
		return cmp.Or(strings.Compare(x.Client, y.Client), strings.Compare(y.Lists, x.Lists), at(x)-at(y))
	})
}

// text returns the page's section about cases.
func (r *results) text() string {
	var b strings.Builder
	b.WriteString("| client | version | lists | case | result | time |\n|---|---|---|---|---|---|\n")
	counts := map[string]int{}
	for _, row := range r.Rows {
		word, _, _ := strings.Cut(row.Outcome, ":")
		counts[word]++
		elapsed := row.Took.Round(10 * time.Millisecond).String()
		if word != "passed" {
			elapsed = "-"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.Client, row.Version, row.Lists, row.Case, row.Outcome, elapsed)
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d not offered by the client.\n\n", counts["passed"], counts["failed"], counts["not offered by the client"])
	b.WriteString("| client | calls to each plugin while a pod with host ports is created, its container restarted, and the pod removed |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(r.Calls)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, r.Calls[name])
	}
	return b.String()
}

// TestCasesPage checks that the page shows the recorded results, and that no case of any client failed or is missing.
func TestCasesPage(t *testing.T) {
	t.Parallel()
	all := readResults(t)
	if _, text, _ := pageParts(t, runtimesPage, "cases"); text != all.text() {
		t.Errorf("the page has\n%s\nthe results are\n%s", text, all.text())
	}
	for _, client := range []string{"containerd 1.6", "containerd 2.3", "Podman", "nerdctl"} {
		for _, lists := range []string{"plain", "fused"} {
			for _, s := range scenarios() {
				i := slices.IndexFunc(all.Rows, func(r result) bool { return r.Client == client && r.Lists == lists && r.Case == s.name })
				if i < 0 || all.Rows[i].Outcome != "passed" && !strings.HasPrefix(all.Rows[i].Outcome, "not offered by the client: ") {
					t.Errorf("%s with %s lists, %s: did not pass, or was not run (make e2e writes the page)", client, lists, s.name)
				}
			}
		}
	}
}
