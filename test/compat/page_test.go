package compat

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

// page gathers what the tests see, and is docs/compatibility.md.
type page struct {
	differences []difference

	mu       sync.Mutex
	versions map[string]string // outcome by "plugin version side"
	keys     map[string]string // by the case's name: equal, or what it needs
	errors   []string          // rows
}

func newPage() *page {
	return &page{differences: differences(), versions: map[string]string{}, keys: map[string]string{}}
}

func (p *page) version(name, version string, s side, outcome string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.versions[name+" "+version+" "+s.String()] = outcome
}

func (p *page) key(k keyCase, outcome string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[k.name()] = outcome
}

func (p *page) error(b badInput, theirs, ours string) {
	note := b.why
	if note == "" && theirs == ours {
		note = "equal"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors = append(p.errors, fmt.Sprintf("| %s | %s | %s | %s |", b.name, theirs, ours, note))
}

// complete is false when only some tests were asked for. Cases that need what
// this kernel lacks are no part of it: the VM lane runs them.
func (p *page) complete() bool {
	for _, k := range allKeys() {
		if _, ran := p.keys[k.name()]; !ran && k.needs == "" {
			return false
		}
	}
	return len(p.versions) == len(lifecycles())*len(cni.Versions())*(len(sides())-1) && len(p.errors) == len(badInputs())
}

// check compares the page with the one that is committed, or, with UPDATE=1,
// writes it: as far as it was run.
func (p *page) check(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "compatibility.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	have, text := string(raw), ""
	if p.complete() {
		p.allSeen(t)
		text = p.text(p.withCommitted(have))
	} else {
		t.Log("only the rows of docs/compatibility.md that were run are compared")
		text = p.withRows(t, have)
	}
	switch {
	case os.Getenv("UPDATE") != "":
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	case have != text:
		t.Errorf("docs/compatibility.md is not what was seen (make compat writes it):\n%s", lineDiff(have, text))
	}
}

// allSeen asks of every difference that it was met, unless a case that may
// show it did not run.
func (p *page) allSeen(t *testing.T) {
	for _, d := range p.differences {
		if d.cases == nil || d.chance || d.seen.Load() {
			continue
		}
		elsewhere := slices.ContainsFunc(allKeys(), func(k keyCase) bool {
			_, ran := p.keys[k.name()]
			return !ran && d.cases.MatchString(k.name())
		})
		if !elsewhere {
			t.Errorf("the difference %q was not seen any more: take it from the list", d.what)
		}
	}
}

// withCommitted are the outcomes, those of cases that did not run as committed.
func (p *page) withCommitted(text string) map[string]string {
	all := map[string]string{}
	eachRow(text, func(name, outcome, line string) string { all[name] = outcome; return line })
	maps.Copy(all, p.keys)
	return all
}

// withRows is a page's text with the outcomes of the cases that ran.
func (p *page) withRows(t *testing.T, text string) string {
	found := map[string]bool{}
	text = eachRow(text, func(name, outcome, line string) string {
		now, ran := p.keys[name]
		if !ran {
			return line
		}
		found[name] = true
		return strings.TrimSuffix(line, outcome+" |\n") + now + " |\n"
	})
	for name := range p.keys {
		if !found[name] {
			t.Errorf("docs/compatibility.md has no row for %s (make compat writes it)", name)
		}
	}
	return text
}

// eachRow calls f with the rows of the keys, and puts in place what it returns.
func eachRow(text string, f func(name, outcome, line string) string) string {
	var b strings.Builder
	plugin, keys := "", false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "## ") {
			keys = strings.HasPrefix(line, "## Configuration keys")
		}
		if name, ok := strings.CutPrefix(line, "### "); ok {
			plugin = strings.TrimSpace(name)
		}
		if cells := strings.Split(strings.TrimSpace(line), " | "); keys && len(cells) == 3 && strings.HasPrefix(line, "| `") {
			name := plugin + "/" + strings.Trim(cells[0], "| `")
			if with := strings.TrimSpace(cells[1]); with != "" {
				name += " " + with
			}
			line = f(name, strings.TrimSuffix(cells[2], " |"), line)
		}
		b.WriteString(line)
	}
	return b.String()
}

// text is the page, with an outcome for each key's case.
func (p *page) text(outcomes map[string]string) string {
	var b strings.Builder
	b.WriteString(introduction)
	p.writeVersions(&b)
	p.writeKeys(&b, outcomes)
	p.writeDifferences(&b)
	p.writeErrors(&b)
	return b.String()
}
