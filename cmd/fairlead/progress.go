package main

import (
	"fmt"
	"time"
)

// progressAfter is how long a person waits without a word.
const progressAfter = time.Second

// progress shows on a terminal that work goes on, until the returned function
// is called.
func (a *app) progress(what string) (end func()) {
	if !terminal(a.stderr) || a.json {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		began, shown := time.Now(), false
		tick := time.NewTicker(progressAfter)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				shown = true
				fmt.Fprintf(a.stderr, "\r%s: at work for %d s (Ctrl-C undoes it) ", what, int(time.Since(began).Seconds()))
			case <-stop:
				if shown {
					fmt.Fprint(a.stderr, "\r\033[K")
				}
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// working shows how far long work has come, one line that is written over.
func (a *app) working(what string, done, of int) (end func()) {
	if !terminal(a.stderr) || a.json || of < 10 {
		return func() {}
	}
	fmt.Fprintf(a.stderr, "\r\033[K%s: %d of %d ", what, done+1, of)
	return func() { fmt.Fprint(a.stderr, "\r\033[K") }
}

// milliseconds is a duration as a person compares it.
func milliseconds(d time.Duration) string {
	ms := inMilliseconds(d)
	if ms < 1 {
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
