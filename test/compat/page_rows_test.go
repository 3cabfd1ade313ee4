package compat

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

// This file parses the rows of the committed page. Rows that this kernel cannot run keep the outcome that the VM lane
// wrote. The VM lane compares or writes only its own rows.

func versionName(name, version string, s side) string { return name + " " + version + " " + s.String() }

// versionNames returns the names of all lifecycles that need a feature, or of all that need none.
func versionNames(needing bool) (out []string) {
	for _, l := range lifecycles() {
		for _, v := range cni.Versions() {
			for _, s := range sides()[1:] {
				if (l.needs != "") == needing {
					out = append(out, versionName(l.name, v, s))
				}
			}
		}
	}
	return out
}

// cell is an outcome on the page with the name of its case.
type cell struct{ name, outcome string }

// eachRow calls f with the outcomes of each row of versions or keys, and replaces them with what f returns.
func eachRow(text string, f func([]cell) []cell) string {
	var b strings.Builder
	section, plugin := "", ""
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(title)
		}
		if title, ok := strings.CutPrefix(line, "### "); ok {
			plugin = strings.TrimSpace(title)
		}
		columns := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), " |"), " | ")
		if cells := rowCells(section, plugin, columns); cells != nil {
			for i, c := range f(cells) {
				columns[2+i] = c.outcome
			}
			line = strings.Join(columns, " | ") + " |\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// rowCells returns the outcomes of a row, or nil if the line is not such a row. The first two columns identify the
// case.
func rowCells(section, plugin string, columns []string) (out []cell) {
	first := strings.TrimPrefix(columns[0], "| ")
	switch {
	case section == "Versions" && len(columns) == 1+len(sides()) && slices.Contains(cni.Versions(), columns[1]):
		for i, s := range sides()[1:] {
			out = append(out, cell{versionName(first, columns[1], s), columns[2+i]})
		}
	case section == "Configuration keys" && len(columns) == 3 && strings.HasPrefix(first, "`"):
		k := keyCase{plugin: plugin, key: strings.Trim(first, "`"), with: strings.TrimSpace(columns[1])}
		out = append(out, cell{k.name(), columns[2]})
	}
	return out
}

// with returns the page with the committed outcomes of all cases that did not run.
func (p *page) with(text string) *page {
	all := newPage()
	all.errors = p.errors
	numbers := p.renumber(text)
	eachRow(text, func(row []cell) []cell {
		for _, c := range row {
			outcome := numbers.outcome(c.outcome)
			all.versions[c.name], all.keys[c.name] = outcome, outcome
		}
		return row
	})
	for name, outcome := range p.versions {
		all.versions[name] = outcome
	}
	for name, outcome := range p.keys {
		all.keys[name] = outcome
	}
	return all
}

// renumbering maps the former number of a difference to its current number.
type renumbering map[string]string

// renumber finds the differences of the committed page in the current list.
func (p *page) renumber(text string) renumbering {
	_, table, _ := strings.Cut(text, "## Deliberate differences")
	out := renumbering{}
	for line := range strings.Lines(table) {
		columns := strings.Split(strings.TrimPrefix(line, "| "), " | ")
		for i, d := range p.differences {
			if len(columns) > 1 && columns[1] == d.what {
				out[columns[0]] = strconv.Itoa(i + 1)
			}
		}
	}
	return out
}

const exceptFor = " except for "

func (n renumbering) outcome(s string) string {
	outcome, list, ok := strings.Cut(s, exceptFor)
	if !ok {
		return s
	}
	numbers := strings.Split(list, ", ")
	for i, old := range numbers {
		if now, ok := n[old]; ok {
			numbers[i] = now
		}
	}
	slices.SortFunc(numbers, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return outcome + exceptFor + strings.Join(numbers, ", ")
}

// updateRows returns the page's text with the outcomes of the cases that ran.
func (p *page) updateRows(t *testing.T, text string) string {
	found := map[string]bool{}
	text = eachRow(text, func(row []cell) []cell {
		for i, c := range row {
			for _, ran := range []map[string]string{p.versions, p.keys} {
				if now, ok := ran[c.name]; ok {
					row[i].outcome, found[c.name] = now, true
				}
			}
		}
		return row
	})
	for _, ran := range []map[string]string{p.versions, p.keys} {
		for name := range ran {
			if !found[name] {
				t.Errorf("docs/compatibility.md has no row for %s (make compat writes it)", name)
			}
		}
	}
	return text
}

func TestPageRoundTrip(t *testing.T) {
	t.Parallel()
	p := newPage()
	for i, name := range versionNames(true) {
		p.versions[name] = strings.Repeat("i", i%3+1)
	}
	for _, k := range allKeys() {
		p.keys[k.name()] = "equal except for 1, 2"
	}
	text := p.text()
	seen := 0
	back := eachRow(text, func(row []cell) []cell {
		seen += len(row)
		return slices.Clone(row)
	})
	if back != text {
		t.Error("eachRow changed the page")
	}
	if want := len(versionNames(true)) + len(versionNames(false)) + len(allKeys()); seen != want {
		t.Errorf("%d outcomes were parsed, want %d", seen, want)
	}
	if again := p.with(text).text(); again != text {
		t.Error("the committed outcomes are not kept")
	}
	// On the older page, the first and the third difference have each other's number.
	d := p.differences
	then := strings.NewReplacer("| 1 | "+d[0].what, "| 3 | "+d[0].what, "| 3 | "+d[2].what, "| 1 | "+d[2].what, "for 1, 2", "for 2, 3").Replace(text)
	if again := newPage().with(then).keys["bridge/mtu"]; again != "equal except for 1, 2" {
		t.Errorf("differences are not found by their text: %s", again)
	}
	if again := p.updateRows(t, newPage().text()); again != text {
		t.Error("rows are not updated")
	}
}
