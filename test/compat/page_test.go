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

// complete is false when only some tests were asked for.
func (p *page) complete() bool {
	return len(p.versions) == len(lifecycles())*len(cni.Versions())*(len(sides())-1) && len(p.keys) == len(allKeys()) && len(p.errors) == len(badInputs())
}

// check compares the page with the one that is committed, or, with UPDATE=1, writes it.
func (p *page) check(t *testing.T) {
	if !p.complete() {
		t.Log("docs/compatibility.md is not compared: not every test ran")
		return
	}
	for _, d := range p.differences {
		if d.cases != nil && !d.chance && !d.seen.Load() {
			t.Errorf("the difference %q was not seen any more: take it from the list", d.what)
		}
	}
	file := filepath.Join("..", "..", "docs", "compatibility.md")
	text := p.text(p.keys)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (UPDATE=1 go test ./test/compat writes it)", err)
	}
	if !slices.Contains(p.acceptable(text), string(have)) {
		t.Errorf("docs/compatibility.md is not what was seen (UPDATE=1 go test ./test/compat writes it):\n%s", lineDiff(string(have), text))
	}
}

// acceptable are the pages that fit what was seen: another machine's kernel may
// have, or lack, what some rows need.
func (p *page) acceptable(text string) []string {
	with, without := map[string]string{}, map[string]string{}
	for _, k := range allKeys() {
		outcome := p.keys[k.name()]
		with[k.name()], without[k.name()] = outcome, outcome
		if k.needs != nil && outcome != "differs" {
			with[k.name()], without[k.name()] = "equal", k.needs.lacking()
		}
	}
	return []string{text, p.text(with), p.text(without)}
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
