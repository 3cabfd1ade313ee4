package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
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

// text returns the page's section about cases: a row for each case, and a column for each client.
func (r *results) text() string {
	var m matrix
	counts, reasons := map[string]int{}, map[string][]string{}
	for _, row := range r.Rows {
		word, why, _ := strings.Cut(row.Outcome, ": ")
		counts[word]++
		column := row.Client + " " + row.Version
		if strings.HasPrefix(row.Version, row.Client[strings.LastIndex(row.Client, " ")+1:]) { // "containerd 1.6" 1.6.20
			column = row.Client[:strings.LastIndex(row.Client, " ")] + " " + row.Version
		}
		m.add(row.Case, column, row.Lists, word)
		if why = row.Case + ": " + why; word == notOffered && !slices.Contains(reasons[why], row.Client) {
			reasons[why] = append(reasons[why], row.Client)
		}
	}
	var b strings.Builder
	b.WriteString(m.text())
	fmt.Fprintf(&b, "\nWith both kinds of lists, %d passed, %d failed, %d are not offered by the client:\n\n", counts["passed"], counts["failed"], counts[notOffered])
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "- %s (%s).\n", why, strings.Join(reasons[why], ", "))
	}
	b.WriteString("\n| client | calls to each plugin while a pod with host ports is created, its container restarted, and the pod removed |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(r.Calls)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, r.Calls[name])
	}
	return b.String()
}

const notOffered = "not offered by the client"

// matrix is a table of outcomes. Rows and columns are in the order in which they were added.
type matrix struct {
	rows, columns []string
	cells         map[[2]string][]string
}

// add adds an outcome to a cell. The kind says of what, if the outcomes of a cell differ.
func (m *matrix) add(row, column, kind, outcome string) {
	if m.cells == nil {
		m.cells = map[[2]string][]string{}
	}
	if !slices.Contains(m.rows, row) {
		m.rows = append(m.rows, row)
	}
	if !slices.Contains(m.columns, column) {
		m.columns = append(m.columns, column)
	}
	at := [2]string{row, column}
	m.cells[at] = append(m.cells[at], kind+": "+strings.Replace(outcome, notOffered, "not offered", 1))
}

func (m *matrix) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| case | %s |\n|%s\n", strings.Join(m.columns, " | "), strings.Repeat("---|", 1+len(m.columns)))
	for _, row := range m.rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, column := range m.columns {
			fmt.Fprintf(&b, " %s |", oneOutcome(m.cells[[2]string{row, column}]))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// oneOutcome returns the outcome that all have, or all with their kinds; "-" without any.
func oneOutcome(all []string) string {
	same := map[string]bool{}
	for _, text := range all {
		_, outcome, _ := strings.Cut(text, ": ")
		same[outcome] = true
	}
	switch {
	case len(all) == 0:
		return "-"
	case len(same) == 1:
		return slices.Collect(maps.Keys(same))[0]
	}
	return strings.Join(all, ", ")
}

// TestCasesPage checks that the page shows the recorded results (UPDATE=1 writes it), and that no case of any client failed or is missing.
func TestCasesPage(t *testing.T) {
	all := readResults(t)
	if os.Getenv("UPDATE") != "" {
		rewritePage(t, runtimesPage, "cases", all.text())
	} else {
		t.Parallel()
	}
	if _, text, _ := pageParts(t, runtimesPage, "cases"); text != all.text() {
		t.Errorf("the page has\n%s\nthe results are\n%s", text, all.text())
	}
	for _, client := range []string{"containerd 1.6", "containerd 2.3", "Podman", "nerdctl"} {
		for _, lists := range []string{"plain", "fused"} {
			for _, s := range scenarios() {
				i := slices.IndexFunc(all.Rows, func(r result) bool { return r.Client == client && r.Lists == lists && r.Case == s.name })
				if i < 0 || all.Rows[i].Outcome != "passed" && !strings.HasPrefix(all.Rows[i].Outcome, notOffered+": ") {
					t.Errorf("%s with %s lists, %s: did not pass, or was not run (make e2e writes the page)", client, lists, s.name)
				}
			}
		}
	}
}
