// Mutate plants small faults in the code, one at a time, and runs the tests: each fault should make a test fail. It uses
// overlays of the go command, so it changes no file of the tree.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

type options struct {
	n, jobs, depth int
	seed           uint64
	results        string
	area           string
	list           bool
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 150, "number of mutants that compile")
	flag.Uint64Var(&o.seed, "seed", 1, "choose the sample")
	flag.IntVar(&o.jobs, "jobs", 2, "mutants to try at once")
	flag.IntVar(&o.depth, "depth", allTests, "tests: 1 the package's own, 2 and the quick ones of its users, 3 and the slow ones, 4 and those in a virtual machine")
	flag.StringVar(&o.results, "results", "bin/mutants", "`file` of results; a later run continues there")
	flag.StringVar(&o.area, "area", "", "only this `part` of the tree, for example kernel")
	flag.BoolVar(&o.list, "list", false, "print the results and try nothing")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func (o *options) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	all, err := sample(root, o.seed)
	if err != nil {
		return err
	}
	known, err := o.read()
	if err != nil {
		return err
	}
	harmless, err := equivalents(filepath.Join(root, "test/mutate/equivalent.txt"))
	if err != nil {
		return err
	}
	if !o.list {
		if err := o.try(ctx, root, all, known, harmless); err != nil {
			return err
		}
	}
	fmt.Print(report(all, shares(all, o.n), known, harmless))
	return nil
}

// try tries the mutants of each area's share. A mutant that does not compile is replaced by the next one.
func (o *options) try(ctx context.Context, root string, all map[string][]*mutant, known map[string]*result, harmless map[string]string) error {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return err
	}
	if err := limitProcesses(); err != nil {
		return err
	}
	j := &judge{root: root, commit: strings.TrimSpace(string(commit)), depth: o.depth, baseline: map[string]*baseline{}}
	if j.users, err = users(root); err != nil {
		return err
	}
	if j.temp, err = os.MkdirTemp("", "mutate-"); err != nil {
		return err
	}
	defer os.RemoveAll(j.temp)
	if err := os.MkdirAll(filepath.Dir(o.results), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(o.results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	q := &queue{all: all, share: shares(all, o.n), known: known, harmless: harmless, judge: j, only: o.area, file: file, began: time.Now()}
	var workers sync.WaitGroup
	errs := make([]error, o.jobs)
	for i := range o.jobs {
		workers.Go(func() { errs[i] = q.work(ctx) })
	}
	workers.Wait()
	return errors.Join(errs...)
}

// queue hands out mutants to workers and keeps their results.
type queue struct {
	mu       sync.Mutex
	all      map[string][]*mutant
	share    map[string]int
	known    map[string]*result // by ID
	harmless map[string]string  // by ID: the reason
	judge    *judge
	only     string
	file     *os.File
	began    time.Time
	tried    int
	taken    map[string]bool
}

func (q *queue) work(ctx context.Context) error {
	for ctx.Err() == nil {
		m, r := q.next()
		if m == nil {
			return nil
		}
		if err := q.judge.try(ctx, m, r); err != nil {
			return err
		}
		if err := q.keep(m, r); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// next returns a mutant to try and a copy of its earlier result, or nil.
func (q *queue) next() (*mutant, *result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken == nil {
		q.taken = map[string]bool{}
	}
	for _, area := range areas {
		if q.only != "" && q.only != area {
			continue
		}
		compiling := 0
		for _, m := range q.all[area] {
			if compiling == q.share[area] {
				break
			}
			id := m.id()
			r := q.known[id]
			if r == nil || r.Outcome != invalid {
				compiling++
			}
			if q.taken[id] || q.harmless[id] != "" || r != nil && (r.Outcome != alive || len(r.Survived) >= len(q.judge.suites(m.Dir))) {
				continue
			}
			q.taken[id] = true
			if r == nil {
				return m, &result{ID: id, Area: area, Mutant: m.String()}
			}
			again := *r // the worker changes it
			return m, &again
		}
	}
	return nil, nil
}

// keep stores a result and prints it.
func (q *queue) keep(m *mutant, r *result) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.known[r.ID] = r
	q.tried++
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s  %d tried  %-8s %s %s\n", time.Since(q.began).Round(time.Second), q.tried, r.Outcome, m, r.By)
	_, err = q.file.Write(append(raw, '\n'))
	return err
}

// read reads the results of earlier runs. The last result of a mutant counts.
func (o *options) read() (map[string]*result, error) {
	known := map[string]*result{}
	f, err := os.Open(o.results)
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r := &result{}
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			return nil, fmt.Errorf("%s: %w", o.results, err)
		}
		known[r.ID] = r
	}
	return known, lines.Err()
}
