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

const page = "../../docs/runtimes.md"

// The parts of the page that tests write stand between such lines.
func marks(part string) (begin, end string) {
	return "<!-- " + part + ": written by a test -->\n", "<!-- end of " + part + " -->\n"
}

func rewritePage(t *testing.T, part, text string) {
	t.Helper()
	before, _, after := pageParts(t, part)
	if err := os.WriteFile(page, []byte(before+text+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func pageParts(t *testing.T, part string) (before, text, after string) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := marks(part)
	i, j := strings.Index(string(raw), begin), strings.Index(string(raw), end)
	if i < 0 || j < i {
		t.Fatalf("%s has no part %q", page, part)
	}
	i += len(begin)
	return string(raw[:i]), string(raw[i:j]), string(raw[j:])
}

// sort puts clients by name, plain lists first, and cases in their order.
func (r *results) sort() {
	order := scenarios()
	at := func(row result) int {
		return slices.IndexFunc(order, func(s scenario) bool { return s.name == row.Case })
	}
	slices.SortStableFunc(r.Rows, func(x, y result) int {
		return cmp.Or(strings.Compare(x.Client, y.Client), strings.Compare(y.Lists, x.Lists), at(x)-at(y))
	})
}

// text is the part of the page about cases.
func (r *results) text() string {
	var b strings.Builder
	b.WriteString("| client | version | lists | case | result | time |\n|---|---|---|---|---|---|\n")
	counts := map[string]int{}
	for _, row := range r.Rows {
		word, _, _ := strings.Cut(row.Said, ":")
		counts[word]++
		took := row.Took.Round(10 * time.Millisecond).String()
		if word != "passed" {
			took = "-"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.Client, row.Version, row.Lists, row.Case, row.Said, took)
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d not offered by the client.\n\n", counts["passed"], counts["failed"], counts["not offered by the client"])
	b.WriteString("| client | what it asks of each plugin while a pod with host ports is made, its container restarted, and the pod removed |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(r.Calls)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, r.Calls[name])
	}
	return b.String()
}

// The page says what the last runs saw: every case of every client, and none that
// failed.
func TestPage(t *testing.T) {
	t.Parallel()
	all := readResults(t)
	if _, text, _ := pageParts(t, "cases"); text != all.text() {
		t.Errorf("the page has\n%s\nthe runs saw\n%s", text, all.text())
	}
	for _, client := range []string{"containerd 1.6", "containerd 2.3", "Podman", "nerdctl"} {
		for _, lists := range []string{"plain", "fused"} {
			for _, s := range scenarios() {
				i := slices.IndexFunc(all.Rows, func(r result) bool { return r.Client == client && r.Lists == lists && r.Case == s.name })
				if i < 0 || all.Rows[i].Said != "passed" && !strings.HasPrefix(all.Rows[i].Said, "not offered by the client: ") {
					t.Errorf("%s with %s lists, %s: did not pass, or was not run (make e2e writes the page)", client, lists, s.name)
				}
			}
		}
	}
}
