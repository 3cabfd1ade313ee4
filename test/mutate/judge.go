package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Outcomes of a mutant.
const (
	caught  = "caught"
	alive   = "alive"    // all tests so far passed
	invalid = "no build" // it does not compile
)

// result says how the tests judged a mutant. A later run with more tests continues from it.
type result struct {
	ID       string
	Area     string
	Mutant   string
	Outcome  string
	By       string   `json:",omitempty"` // the package whose tests caught it
	Survived []string `json:",omitempty"` // packages whose tests passed
	Commit   string
}

// slow lists the packages whose tests run last, in this order.
var slow = []string{
	"agent/address", "agent/store", "plugins/ipam/dhcpd", "plugins/ipam", "test/security", "test/scenario", "test/churn",
	"test/cluster", "cmd/fairlead", "test/compat", "test/e2e", "test/crash",
}

// builders are the slow packages whose tests build our programs: they run code of packages that they do not import.
var builders = []string{"test/compat", "test/e2e"}

// depths: how many tests a mutant meets.
const (
	ownTests   = 1 // those of its package
	quickTests = 2 // and those of packages that use it, except the slow ones
	allTests   = 3 // and the slow ones
	vmTests    = 4 // and those in a virtual machine
)

// judge tries mutants.
type judge struct {
	root, temp, commit string
	depth              int
	users              map[string][]string // package directory -> packages whose tests import it
	mu                 sync.Mutex
	baseline           map[string]*baseline
}

// baseline is the run of a package's tests without a mutant.
type baseline struct {
	once sync.Once
	took time.Duration
	err  error
}

// suites returns the packages whose tests a mutant of a directory meets, in order.
func (j *judge) suites(dir string) (list []string) {
	list = []string{dir}
	if j.depth >= quickTests {
		area, _, _ := strings.Cut(dir, "/")
		for _, near := range []bool{true, false} { // packages of the same area know most about it
			for _, p := range j.users[dir] {
				if p != dir && !slices.Contains(slow, p) && !strings.HasPrefix(p, "bench") && near == (p == area || strings.HasPrefix(p, area+"/")) {
					list = append(list, p)
				}
			}
		}
	}
	if j.depth >= allTests {
		for _, p := range slow {
			if p != dir && (slices.Contains(j.users[dir], p) || slices.Contains(builders, p)) {
				list = append(list, p)
			}
		}
	}
	if j.depth >= vmTests {
		list = append(list, inVM)
	}
	return list
}

// inVM stands for the tests of features that the kernel here lacks, in a virtual machine.
const inVM = "vm"

// try plants a mutant and runs the tests that have not run yet.
func (j *judge) try(ctx context.Context, m *mutant, r *result) error {
	r.Commit = j.commit
	overlay, err := j.overlay(m)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(overlay))
	if _, err := j.run(ctx, overlay, 10*time.Minute, "go", "build", "./"+m.Dir); err != nil {
		r.Outcome = invalid
		return ctx.Err()
	}
	r.Outcome = alive
	for _, suite := range j.suites(m.Dir) {
		if slices.Contains(r.Survived, suite) {
			continue
		}
		took, err := j.unmutated(ctx, suite)
		if err != nil {
			return err
		}
		out, err := j.test(ctx, overlay, suite, 4*took+time.Minute)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && strings.Contains(string(out), "[build failed]") {
			r.Outcome = invalid // the tests, or a program that imports the package
			return nil
		}
		if err != nil {
			r.Outcome, r.By = caught, suite
			return nil
		}
		r.Survived = append(r.Survived, suite)
	}
	return nil
}

// unmutated runs a package's tests once without a mutant and returns how long they took. Tests that fail by themselves
// would catch everything.
func (j *judge) unmutated(ctx context.Context, suite string) (time.Duration, error) {
	j.mu.Lock()
	b := j.baseline[suite]
	if b == nil {
		b = &baseline{}
		j.baseline[suite] = b
	}
	j.mu.Unlock()
	b.once.Do(func() {
		began := time.Now()
		if out, err := j.test(ctx, "", suite, time.Hour); err != nil {
			b.err = fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", suite, err, out)
		}
		b.took = time.Since(began)
	})
	return b.took, b.err
}

func (j *judge) test(ctx context.Context, overlay, suite string, limit time.Duration) ([]byte, error) {
	if suite == inVM {
		return j.run(ctx, overlay, limit, "go", "run", "./test/vm", "-kernel", "6.12")
	}
	return j.run(ctx, overlay, limit+10*time.Minute, "go", "test", "-vet=off", "-count=1", "-failfast", "-timeout", limit.Round(time.Second).String(), "./"+suite)
}

// run runs a command with an overlay, also in the go commands that tests start.
func (j *judge) run(ctx context.Context, overlay string, limit time.Duration, argv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = j.root, os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS=-overlay="+overlay)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}

// overlay writes a mutant's file and the file that puts it in place of the original for go commands.
func (j *judge) overlay(m *mutant) (string, error) {
	dir, err := os.MkdirTemp(j.temp, "mutant-")
	if err != nil {
		return "", err
	}
	source, err := m.source(j.root)
	if err != nil {
		return "", err
	}
	mutated, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(j.root, m.File): mutated}})
	if err == nil {
		err = os.WriteFile(mutated, source, 0o644)
	}
	if err == nil {
		err = os.WriteFile(overlay, raw, 0o644)
	}
	return overlay, err
}

// users returns, for each package directory, the packages whose tests import it.
func users(root string) (map[string][]string, error) {
	const module = "github.com/fairlead/fairlead/"
	cmd := exec.Command("go", "list", "-test", "-f", `{{if .ForTest}}{{else if .Name}}{{.ImportPath}}|{{join .Deps " "}}{{end}}`, "./...")
	cmd.Dir = root
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests' imports: %w", err)
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		path, deps, _ := strings.Cut(strings.TrimSpace(line), "|")
		tested, isTest := strings.CutSuffix(path, ".test")
		if !isTest {
			continue
		}
		tested = strings.TrimPrefix(tested, module)
		for _, d := range strings.Fields(deps) {
			if d, ok := strings.CutPrefix(d, module); ok && !slices.Contains(out[d], tested) {
				out[d] = append(out[d], tested)
			}
		}
	}
	return out, nil
}
