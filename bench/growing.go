package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/bench/figures"
	"github.com/fairlead/fairlead/bench/load"
)

// network is one on which attachments stand; a bridge holds 1,023.
type network struct {
	list  string
	floor string
	room  int
}

// growing measures a case at each of its levels, with so many attachments
// standing on every side. One that cannot get there in time takes no part any more.
func (w *world) growing() (rows []figures.Row, err error) {
	stand := 0
	for _, level := range w.c.levels {
		fmt.Fprintf(os.Stderr, "      %d standing\n", level)
		keep := w.sides[:0:0]
		for _, s := range w.sides {
			ok, err := w.fill(s, stand, level)
			if err != nil {
				return rows, err
			}
			if ok {
				keep = append(keep, s)
			} else {
				fmt.Fprintf(os.Stderr, "      %s would need more than %s for %d\n", s.name, w.patience(), level)
				s.stop()
			}
		}
		w.sides, stand = keep, level
		if level > 0 {
			w.settle()
		}
		at, err := w.turns(w.c.name + standing(level))
		if err != nil {
			return rows, err
		}
		rows = append(rows, at...)
	}
	figures.AgainstFirst(rows, w.c.name, standing(w.c.levels[0]))
	return rows, nil
}

// settle waits until the kernel has done what it does of its own accord for new
// links, which goes on for a while; on a machine that never rests not forever.
func (w *world) settle() {
	const window = time.Second
	for end := time.Now().Add(3 * w.options.limit); time.Now().Before(end) && w.ctx.Err() == nil; {
		idle, all := ticks()
		time.Sleep(window)
		idleNow, allNow := ticks()
		if float64(idleNow-idle) > 0.9*float64(allNow-all) {
			return
		}
	}
}

// ticks are the processors' time so far, the idle part and all of it, proc_stat(5).
func ticks() (idle, all int) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	const fourth, eighth = 3, 8 // idle; after the eighth come guests, which are part of others
	for i, word := range strings.Fields(line)[1:] {
		n, _ := strconv.Atoi(word)
		if i == fourth {
			idle = n
		}
		if i < eighth {
			all += n
		}
	}
	return idle, all
}

func standing(n int) string { return fmt.Sprintf(", %d standing", n) }

// patience is how long a side may take to get from one level to the next. The
// kernel itself needs some 10 ms a link then: its workers join multicast groups
// and look for addresses for each.
func (w *world) patience() time.Duration { return 6 * w.options.limit }

// fill attaches so many more containers, some at once.
func (w *world) fill(s *side, from, to int) (ok bool, err error) {
	took := 0.0 // ms
	for from < to {
		n := min(50, to-from)
		jobs, err := w.standingJobs(s, from, n)
		if err != nil {
			return false, err
		}
		a, err := w.do(s, load.Request{Jobs: jobs, AtOnce: 4})
		if err != nil {
			return false, fmt.Errorf("attach container %d: %w", from, err)
		}
		from, took = from+n, took+a.All
		if took > float64(w.patience().Milliseconds()) && from < to {
			return false, nil
		}
	}
	return true, nil
}

// standingJobs are attachments that stay, each in a container of its own.
func (w *world) standingJobs(s *side, from, n int) ([]load.Job, error) {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-standing-%d", s.word, from+i)
	}
	if err := w.namespaces(names...); err != nil {
		return nil, err
	}
	jobs := make([]load.Job, n)
	for i, name := range names {
		on := w.networkOf(from + i)
		list, err := w.listFor(s, on.list)
		if err != nil {
			return nil, err
		}
		jobs[i] = w.job(s, from+i, list, on.floor)
		jobs[i].Verb, jobs[i].Netns, jobs[i].Container = "ADD", w.netns[name], name
	}
	return jobs, nil
}

// networkOf is where the attachment of a number stands: networks are filled in turn.
func (w *world) networkOf(number int) network {
	for _, n := range w.c.networks {
		if number < n.room {
			return n
		}
		number -= n.room
	}
	return w.c.networks[len(w.c.networks)-1]
}
