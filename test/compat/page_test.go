package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// page collects the results of the tests and renders docs/compatibility.md.
type page struct {
	differences []difference

	mu       sync.Mutex
	versions map[string]string // outcome by "plugin version side"
	keys     map[string]string // outcome by the case's name: "equal", or the feature that it needs
	errors   []string          // rows
}

func newPage() *page {
	return &page{differences: differences(), versions: map[string]string{}, keys: map[string]string{}}
}

func (p *page) version(name, version string, s side, outcome string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.versions[versionName(name, version, s)] = outcome
}

func (p *page) key(k keyCase, outcome string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[k.name()] = outcome
}

func (p *page) error(b badInput, reference, fairlead string) {
	note := b.why
	if note == "" && reference == fairlead {
		note = "equal"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors = append(p.errors, fmt.Sprintf("| %s | %s | %s | %s |", b.name, reference, fairlead, note))
}

// complete reports whether all cases of the sample ran that every kernel can run. The VM lane runs the others.
func (p *page) complete() bool {
	for _, k := range allKeys() {
		if _, ran := p.keys[k.name()]; !ran && k.needs == "" {
			return false
		}
	}
	for i, l := range lifecycles() {
		for _, v := range sampledVersions(i) {
			if l.needs == "" && !p.ran(l, v) {
				return false
			}
		}
	}
	return len(p.errors) == len(badInputs())
}

// ran reports whether a list ran in a version, with all sides.
func (p *page) ran(l lifecycle, version string) bool {
	return !slices.ContainsFunc(sides()[1:], func(s side) bool { return p.versions[versionName(l.name, version, s)] == "" })
}

// check compares the results with the committed page. With UPDATE=1 it writes the page.
func (p *page) check(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "compatibility.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	have, text := string(raw), ""
	if p.complete() {
		p.allSeen(t)
		text = p.with(have).text()
	} else {
		t.Log("only the rows of docs/compatibility.md that were run are compared")
		text = p.updateRows(t, have)
	}
	switch {
	case os.Getenv("UPDATE") != "":
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	case have != text:
		t.Errorf("docs/compatibility.md differs from the results (make compat writes it):\n%s", kerneltest.Diff(have, text))
	}
}

// allSeen checks that every difference was found at every place of the list, unless a case that may show it did not run.
func (p *page) allSeen(t *testing.T) {
	var elsewhere []string
	for _, k := range allKeys() {
		if _, ran := p.keys[k.name()]; !ran {
			elsewhere = append(elsewhere, k.name())
		}
	}
	for _, l := range lifecycles() {
		for _, v := range cni.Versions() {
			if !p.ran(l, v) {
				elsewhere = append(elsewhere, l.name+" "+v)
			}
		}
	}
	for _, d := range p.differences {
		for _, s := range d.shows {
			if !d.chance && !s.seen.Load() && !slices.ContainsFunc(elsewhere, s.cases.MatchString) {
				t.Errorf("the difference %q no longer occurs in the steps %q of %q: remove it from the list", d.what, s.steps, s.cases)
			}
		}
	}
}

// text returns the page.
func (p *page) text() string {
	var b strings.Builder
	b.WriteString(introduction)
	p.writeVersions(&b)
	p.writeKeys(&b)
	p.writeDifferences(&b)
	writeOddValues(&b)
	p.writeErrors(&b)
	return b.String()
}
