// Command floor measures the benchmark's floor: the start of an empty program, and the kernel work of an attachment
// with plain calls in process. It uses no configuration, address store or record. Building blocks describe the work,
// see blocks. Those before a "|" are executed but not measured.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/fairlead/fairlead/bench/load"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

func main() { load.Main(do) }

func do(ctx context.Context, j load.Job) error {
	before, measured, found := strings.Cut(j.Floor, "|")
	if !found {
		before, measured = "", j.Floor
	}
	a := attachment{Owner: kernel.Owner{Network: "floor", ContainerID: j.Container, IfName: j.IfName}, number: j.Number}
	if j.Verb == "DEL" {
		return inTurn(func() error { return measure(ctx, j, a, measured) }, func() error { return work(j, a, before) })
	}
	return inTurn(func() error { return work(j, a, before) }, func() error { return measure(ctx, j, a, measured) })
}

func inTurn(first, second func() error) error {
	if err := first(); err != nil {
		return err
	}
	return second()
}

// measure starts one or more empty programs, and does the work of the building blocks.
func measure(ctx context.Context, j load.Job, a attachment, words string) error {
	for range max(1, j.Starts) {
		if err := empty(ctx, j); err != nil {
			return err
		}
	}
	began := time.Now()
	err := work(j, a, words)
	load.Note(ctx, float64(time.Since(began))/1e6)
	return err
}

func empty(ctx context.Context, j load.Job) error {
	path := os.Getenv("FAIRLEAD_BENCH_EMPTY")
	_, err := load.Exec(ctx, path, nil, func(path string, env []string) ([]byte, error) {
		cmd := exec.Command(path)
		cmd.Env = env
		cmd.Stdin = strings.NewReader(j.List)
		return cmd.Output()
	})
	if err != nil {
		return fmt.Errorf("start an empty program: %w", err)
	}
	return nil
}

func work(j load.Job, a attachment, text string) error {
	if text == "" {
		return nil
	}
	list, err := a.objects(text)
	if err != nil {
		return err
	}
	ns, err := netns.Open(j.Netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	with := func(do func(*kernel.Engine) error) error {
		e, err := kernel.Open(ns, kernel.Options{})
		if err != nil {
			return err
		}
		defer e.Close()
		return do(e)
	}
	switch j.Verb {
	case "ADD":
		return with(func(e *kernel.Engine) error { return e.Apply(list) })
	case "CHECK":
		return with(func(e *kernel.Engine) error { return check(e, list) })
	}
	return remove(list, with)
}

func check(e *kernel.Engine, list kernel.Objects) error {
	diffs, err := e.Compare(list)
	if len(diffs) > 0 {
		return fmt.Errorf("the floor's kernel objects differ from what it created: %v", diffs)
	}
	return err
}

// headStart is the time for which the removal of the links runs alone. A transaction that commits just before it would
// make it wait for a second RCU grace period.
const headStart = time.Millisecond

// remove removes all links with one message, and the other objects while it waits for that.
func remove(list kernel.Objects, with func(func(*kernel.Engine) error) error) error {
	links, rest := kernel.SplitLinks(list)
	gone := make(chan error, 1)
	go func() { gone <- with(func(e *kernel.Engine) error { return e.Remove(links) }) }()
	time.Sleep(headStart)
	err := with(func(e *kernel.Engine) error { return e.Remove(rest) })
	return errors.Join(err, <-gone)
}
