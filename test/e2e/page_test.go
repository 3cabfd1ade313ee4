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

// text is the part of the page about cases.
func (r *results) text(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| client | version | lists | case | result | time |\n|---|---|---|---|---|---|\n")
	order := scenarios()
	at := func(row result) int {
		return slices.IndexFunc(order, func(s scenario) bool { return s.name == row.name })
	}
	slices.SortStableFunc(r.rows, func(x, y result) int {
		return cmp.Or(strings.Compare(x.client, y.client), strings.Compare(y.lists, x.lists), at(x)-at(y))
	})
	counts := map[string]int{}
	for _, row := range r.rows {
		word, _, _ := strings.Cut(row.said, ":")
		counts[word]++
		took := row.took.Round(10 * time.Millisecond).String()
		if word != "passed" {
			took = "-"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.client, row.version, row.lists, row.name, row.said, took)
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d not offered by the client.\n\n", counts["passed"], counts["failed"], counts["not offered by the client"])
	b.WriteString("| client | what it asks of each plugin while a pod with host ports is made, its container restarted, and the pod removed |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(r.calls)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, r.calls[name])
	}
	if t.Failed() {
		t.Error("cases failed: the page says so")
	}
	return b.String()
}

// The page has every case of every client, and none that failed.
func TestPage(t *testing.T) {
	t.Parallel()
	_, text, _ := pageParts(t, "cases")
	for _, client := range []string{"containerd 1.6", "containerd 2.3", "Podman", "nerdctl"} {
		for _, lists := range []string{"plain", "fused"} {
			for _, s := range scenarios() {
				said := ""
				for line := range strings.Lines(text) {
					if f := strings.Split(line, " | "); len(f) == 6 && strings.TrimPrefix(f[0], "| ") == client && f[2] == lists && f[3] == s.name {
						said = f[4]
					}
				}
				if said != "passed" && !strings.HasPrefix(said, "not offered by the client: ") {
					t.Errorf("%s with %s lists, %s: %q (make e2e writes the page)", client, lists, s.name, said)
				}
			}
		}
	}
}
