package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/bench/figures"
	"github.com/fairlead/fairlead/bench/load"
)

// measuredFrom is the number of the first measured attachment. Attachments that already exist have smaller numbers.
const measuredFrom = 20000

// measureCase measures a case on all sides.
func (b *bench) measureCase(c benchCase) ([]figures.Row, error) {
	if b.lacks(c.needs) {
		fmt.Fprintf(os.Stderr, "      this kernel has no %s: make bench-vm measures it in one that has\n", c.needs)
		return nil, nil
	}
	w, err := b.open(c)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if len(c.levels) > 0 {
		return w.growing()
	}
	return w.measureRounds(c.name)
}

const (
	warmUp  = 2
	atLeast = 5 // rounds, whatever time they take
)

// measureRounds measures rounds of ADD, CHECK and DEL, one side after the other, until there are enough rounds or the
// case's time is over.
func (w *world) measureRounds(name string) (rows []figures.Row, err error) {
	all := w.measured(name)
	warm, want := warmUp, w.c.rounds(w.options.rounds)
	if w.c.node {
		warm = 0 // a round is long enough without a warm-up
	}
	if err := w.warmUp(); err != nil {
		return nil, err
	}
	began := time.Now()
	for i := range want + warm {
		if i >= min(want, atLeast)+warm && time.Since(began) > w.options.limit {
			break
		}
		for _, s := range w.sides {
			got, err := w.round(s)
			if err != nil {
				return nil, err
			}
			for verb, sample := range got {
				if i >= warm {
					all[verb].Samples[s.name] = append(all[verb].Samples[s.name], sample)
				}
			}
		}
	}
	if err := w.peaks(all["ADD"]); err != nil {
		return nil, err
	}
	for _, verb := range w.c.operations() {
		rows = append(rows, all[verb].Rows()...)
	}
	return rows, nil
}

// warmUp adds and deletes one attachment before concurrent measurements, to create what attachments share. The
// reference plugins fail when they create the same chain concurrently.
func (w *world) warmUp() error {
	if w.c.size() == 1 {
		return nil
	}
	for _, s := range w.sides {
		jobs, err := w.jobs(s)
		if err != nil {
			return err
		}
		for _, verb := range []string{"ADD", "DEL"} {
			if _, err := w.do(s, load.Request{Jobs: withVerb(jobs[:1], verb)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// measured allocates the samples for each operation.
func (w *world) measured(name string) map[string]*figures.Measured {
	all := map[string]*figures.Measured{}
	for _, verb := range w.c.operations() {
		all[verb] = &figures.Measured{Group: w.c.group, Case: name, Verb: verb, Jobs: w.c.size(), Samples: map[string][]figures.Sample{}, Peak: map[string]int{}}
		for _, s := range w.sides {
			all[verb].Sides = append(all[verb].Sides, s.name)
		}
	}
	return all
}

// round runs one round of one side.
func (w *world) round(s *side) (map[string]figures.Sample, error) {
	jobs, err := w.jobs(s)
	if err != nil {
		return nil, err
	}
	got := map[string]figures.Sample{}
	for _, verb := range w.c.operations() {
		began := time.Now()
		a, err := w.do(s, load.Request{Jobs: withVerb(jobs, verb), AtOnce: w.c.atOnce})
		if err != nil {
			return nil, err
		}
		sample := figures.Sample{Time: a.All, CPU: a.CPU}
		if w.c.only != "" {
			sample.Time = a.Plugins[0]
			if w.c.chained {
				sample.CPU = 0 // the CPU time is that of the whole list
			}
		}
		if verb == "ADD" && w.c.answered != nil {
			err := w.c.answered(w, s)
			if sample.Silent = errors.Is(err, errSilent); err != nil && !sample.Silent {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			sample.Time = float64(time.Since(began)) / 1e6
		}
		got[verb] = sample
	}
	return got, nil
}

// jobs returns the attachments that one round of a side measures.
func (w *world) jobs(s *side) ([]load.Job, error) {
	jobs := make([]load.Job, w.c.size())
	names := make([]string, len(jobs))
	for i := range jobs {
		names[i] = fmt.Sprintf("%s-%d", s.word, i)
	}
	if err := w.namespaces(names...); err != nil {
		return nil, err
	}
	for i, name := range names {
		jobs[i] = w.job(s, measuredFrom+i, s.list, w.c.floor)
		jobs[i].Container, jobs[i].Netns = name, w.netns[name]
	}
	return jobs, nil
}

func (w *world) job(s *side, number int, list, floor string) load.Job {
	j := load.Job{List: list, Only: w.c.only, Floor: floor, Number: number, IfName: "eth0"}
	if w.c.ifname != "" {
		j.IfName = w.c.ifname
	}
	if s.name == figures.Nothing {
		j.Floor = ""
	}
	if s.name == figures.EachEmpty {
		j.Starts = pluginsOf(list)
	}
	if s.driver == "floor-driver" {
		j.Only = ""
	}
	if w.c.ports {
		j.Runtime = map[string]any{"portMappings": []map[string]any{{"hostPort": 1 + number, "containerPort": 80, "protocol": "tcp"}}}
	}
	return j
}

// pluginsOf returns the number of plugins in a list.
func pluginsOf(list string) int {
	var l struct{ Plugins []json.RawMessage }
	_ = json.Unmarshal([]byte(list), &l) // the runtime reports an invalid list
	return len(l.Plugins)
}

func withVerb(jobs []load.Job, verb string) []load.Job {
	out := make([]load.Job, len(jobs))
	for i, j := range jobs {
		j.Verb = verb
		out[i] = j
	}
	return out
}

// peaks measures memory, one attachment at a time.
func (w *world) peaks(m *figures.Measured) error {
	if m == nil || w.c.size() > 1 || !w.options.memory {
		return nil
	}
	const rounds = 3
	for range rounds {
		for _, s := range w.sides {
			jobs, err := w.jobs(s)
			if err != nil {
				return err
			}
			a, err := w.do(s, load.Request{Jobs: withVerb(jobs, "ADD"), Peak: true})
			if err != nil {
				return err
			}
			m.Peak[s.name] = max(m.Peak[s.name], a.Peak)
			if _, err := w.do(s, load.Request{Jobs: withVerb(jobs, "DEL")}); err != nil {
				return err
			}
		}
	}
	return nil
}
