package compat

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

// The rows of the committed page, read back: what this kernel could not run
// stays as the VM lane wrote it, and the lane compares, or writes, its own alone.

func versionName(name, version string, s side) string { return name + " " + version + " " + s.String() }

// versionNames are those of all lifecycles that need a feature, or of all that do not.
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

// cell is an outcome on the page, by the name of its case.
type cell struct{ name, outcome string }

// eachRow calls f with the outcomes of a row of versions or keys, and puts in
// their place what it returns.
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
		if cells := cellsOf(section, plugin, columns); cells != nil {
			for i, c := range f(cells) {
				columns[2+i] = c.outcome
			}
			line = strings.Join(columns, " | ") + " |\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// cellsOf are the outcomes of a row, whose first two columns say of what; nil
// if it is none.
func cellsOf(section, plugin string, columns []string) (out []cell) {
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

// with is the page, what did not run as committed.
func (p *page) with(text string) *page {
	all := newPage()
	all.errors = p.errors
	numbers := p.renumbered(text)
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

// renumbering says which number a difference has now, by the one that it had.
type renumbering map[string]string

// renumbered finds the differences of a committed page in today's list.
func (p *page) renumbered(text string) renumbering {
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

const butFor = "equal but for "

func (n renumbering) outcome(s string) string {
	list, ok := strings.CutPrefix(s, butFor)
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
	return butFor + strings.Join(numbers, ", ")
}

// withRows is a page's text with the outcomes of what ran.
func (p *page) withRows(t *testing.T, text string) string {
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

func TestEachRow(t *testing.T) {
	t.Parallel()
	p := newPage()
	for i, name := range versionNames(true) {
		p.versions[name] = strings.Repeat("i", i%3+1)
	}
	for _, k := range allKeys() {
		p.keys[k.name()] = "equal but for 1, 2"
	}
	text := p.text()
	seen := 0
	back := eachRow(text, func(row []cell) []cell {
		seen += len(row)
		return slices.Clone(row)
	})
	if back != text {
		t.Error("the page is not read back as it was written")
	}
	if want := len(versionNames(true)) + len(versionNames(false)) + len(allKeys()); seen != want {
		t.Errorf("%d outcomes were read back, want %d", seen, want)
	}
	if again := p.with(text).text(); again != text {
		t.Error("what was committed is not kept")
	}
	// The first difference was the third once, and the other way round.
	d := p.differences
	then := strings.NewReplacer("| 1 | "+d[0].what, "| 3 | "+d[0].what, "| 3 | "+d[2].what, "| 1 | "+d[2].what, "for 1, 2", "for 2, 3").Replace(text)
	if again := newPage().with(then).keys["bridge/mtu"]; again != "equal but for 1, 2" {
		t.Errorf("differences are not found by their words: %s", again)
	}
	if again := p.withRows(t, newPage().text()); again != text {
		t.Error("rows are not filled in")
	}
}
