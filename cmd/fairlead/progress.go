package main

import (
	"fmt"
	"time"
)

// progressAfter is the time after which a command shows that it is still running.
const progressAfter = time.Second

// progress shows on a terminal that the command is running, until the caller calls end.
func (a *app) progress(what string) (end func()) {
	w := a.progressStream()
	if w == nil {
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
				fmt.Fprintf(w, "\r%s: running for %d s (Ctrl-C stops it) ", what, int(time.Since(began).Seconds()))
			case <-stop:
				if shown {
					fmt.Fprint(w, "\r\033[K")
				}
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// counter returns a function that shows on a terminal how many of many steps are done.
func (a *app) counter(what string) func(done, of int) (end func()) {
	return func(done, of int) (end func()) {
		w := a.progressStream()
		if w == nil || of < 10 {
			return func() {}
		}
		fmt.Fprintf(w, "\r\033[K%s: %d of %d ", what, done+1, of)
		return func() { fmt.Fprint(w, "\r\033[K") }
	}
}

// milliseconds formats a duration in milliseconds.
func milliseconds(d time.Duration) string {
	ms := float64(d.Microseconds()) / 1000
	if ms < 1 {
		return fmt.Sprintf("%.2f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
