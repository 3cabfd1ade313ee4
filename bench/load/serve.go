package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// Serve answers requests until the end of the input.
func Serve(in io.Reader, out io.Writer, do func(context.Context, Job) error) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r Request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		if err := answers.Encode(r.run(do)); err != nil {
			return err
		}
	}
}

// Main runs Serve as a whole program.
func Main(do func(context.Context, Job) error) {
	if err := Serve(os.Stdin, os.Stdout, do); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r Request) run(do func(context.Context, Job) error) Answer {
	n := len(r.Jobs)
	a := Answer{Each: make([]float64, n), Plugins: make([]float64, n)}
	errs := make([]error, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	spent := make([]*spent, n)
	cpu, began := processors(), time.Now()
	var workers sync.WaitGroup
	for range max(1, r.AtOnce) {
		workers.Go(func() {
			for i := range next {
				ctx, s := note(r.Jobs[i].Only, r.Peak)
				start := time.Now()
				errs[i] = do(ctx, r.Jobs[i])
				a.Each[i], spent[i] = since(start), s
			}
		})
	}
	workers.Wait()
	a.All, a.CPU = since(began), processors()-cpu
	for i, s := range spent {
		a.Plugins[i], a.Peak = s.time, max(a.Peak, s.peak)
		if errs[i] != nil && a.Error == "" {
			a.Error = fmt.Sprintf("%s of %s: %v", r.Jobs[i].Verb, r.Jobs[i].Container, errs[i])
		}
	}
	return a
}

func since(t time.Time) float64 { return float64(time.Since(t)) / 1e6 }

// processors returns the CPU time, in ms, of this process and all descendants that were waited for.
func processors() (ms float64) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			ms += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
		}
	}
	return ms
}
