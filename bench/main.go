// Command bench measures Fairlead, the reference implementation and the kernel's floor in turn (A B C A B C), so that
// noise affects all three. Every side has its own host: a network namespace with separate state.
//
//	go run ./bench [-quick] [-case REGEXP] [-rounds N] [-json FILE] [-write DIR]
//	go run ./bench -floor
//	go run ./bench -list
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/bench/figures"
)

// options are the command's flags.
type options struct {
	pattern   string
	rounds    int
	limit     time.Duration
	quick     bool
	floorOnly bool
	sides     string
	memory    bool
	list      bool
	json      string
	page      string
	also      string
	keep      bool
	programs  string
	buildOnly bool
}

func flags() (o options) {
	flag.StringVar(&o.pattern, "case", "", "measure only cases whose group and name match this regular `expression`")
	flag.IntVar(&o.rounds, "rounds", 60, "maximum number of rounds per case")
	flag.DurationVar(&o.limit, "limit", 20*time.Second, "time limit per case, after at least 5 rounds")
	flag.BoolVar(&o.quick, "quick", false, "use 8 rounds and 3 seconds per case, and skip the large cases; takes some minutes")
	flag.BoolVar(&o.floorOnly, "floor", false, "measure only the floor: the kernel's own cost on this machine")
	flag.BoolVar(&o.memory, "memory", true, "measure memory too")
	flag.StringVar(&o.sides, "sides", "", "measure only these sides, separated by semicolons: "+sideNames())
	flag.BoolVar(&o.list, "list", false, "print the cases, and measure nothing")
	flag.StringVar(&o.json, "json", "", "write the figures as JSON to this `file`")
	flag.BoolVar(&o.keep, "keep", false, "keep the figures in the -json file of cases that are not measured now")
	flag.StringVar(&o.page, "write", "", "write benchmarks.md and its charts into this `directory`")
	flag.StringVar(&o.also, "also", "", "add the figures of this `file`, which -json wrote on another machine, to the page")
	flag.StringVar(&o.programs, "programs", "", "use the programs in this `directory`, which -build filled; by default they are built")
	flag.BoolVar(&o.buildOnly, "build", false, "build the programs into the directory of -programs, and measure nothing")
	flag.Parse()
	if o.floorOnly {
		o.sides = figures.Floor
	}
	if o.quick {
		o.rounds, o.limit = min(o.rounds, 8), min(o.limit, 3*time.Second)
	}
	return o
}

func main() {
	o := flags()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	want, err := regexp.Compile(o.pattern)
	if err != nil {
		return fmt.Errorf("-case: %w", err)
	}
	if o.list {
		for _, c := range selectCases(want, o) {
			fmt.Println(c.title())
		}
		return nil
	}
	if o.buildOnly {
		return build(o.programs)
	}
	if os.Getenv(insideVariable) == "" {
		return o.enter(ctx)
	}
	return o.measure(ctx, selectCases(want, o))
}

// selectCases returns the cases that match.
func selectCases(want *regexp.Regexp, o options) (list []benchCase) {
	for _, c := range cases(o.quick) {
		if want.MatchString(c.title()) && !(o.floorOnly && c.floor == "") {
			list = append(list, c)
		}
	}
	return list
}

// measure measures all cases and reports. A case that fails does not affect the others.
func (o options) measure(ctx context.Context, list []benchCase) error {
	runtime.LockOSThread()
	b, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	report := figures.Report{Machine: machine(), Rounds: o.rounds}
	var failed error
	began := time.Now()
	for i, c := range list {
		fmt.Fprintf(os.Stderr, "%s  %d/%d  %s\n", time.Since(began).Round(time.Second), i+1, len(list), c.title())
		rows, err := b.measureCase(c)
		if ctx.Err() != nil {
			fmt.Print(report.Text(targets()))
			return errors.New("interrupted; all namespaces and files were removed")
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", c.title(), err)
			fmt.Fprintln(os.Stderr, "bench:", err)
			failed = errors.Join(failed, err)
		}
		report.Rows = append(report.Rows, rows...)
	}
	figures.AgainstFirst(report.Rows, "host-local", ", 0 in use")
	return errors.Join(o.report(report), failed)
}

func (o options) report(r figures.Report) error {
	fmt.Print(r.Text(targets()))
	if o.keep {
		old, err := figures.Read(o.json)
		if err != nil {
			return fmt.Errorf("-keep: %w", err)
		}
		r = old.With(r)
	}
	if o.json != "" {
		if err := r.Write(o.json); err != nil {
			return err
		}
	}
	if o.page == "" {
		return nil
	}
	var others []figures.Report
	if other, err := figures.Read(o.also); err == nil {
		others = append(others, other)
	} else if o.also != "" && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for name, text := range r.Page(targets(), others...) {
		if err := os.WriteFile(filepath.Join(o.page, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
