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

// network is a network with existing attachments. A bridge has at most 1,023 ports.
type network struct {
	list  string
	floor string
	room  int
}

// growing measures a case at each of its levels, with that many existing attachments on every side. A side that is too
// slow to reach a level drops out.
func (w *world) growing() (rows []figures.Row, err error) {
	stand := 0
	for _, level := range w.c.levels {
		fmt.Fprintf(os.Stderr, "      %d present\n", level)
		keep := w.sides[:0:0]
		for _, s := range w.sides {
			ok, err := w.fill(s, stand, level)
			if err != nil {
				return rows, err
			}
			if ok {
				keep = append(keep, s)
			} else {
				fmt.Fprintf(os.Stderr, "      %s would take more than %s to reach %d\n", s.name, w.levelTimeout(), level)
				s.stop()
			}
		}
		w.sides, stand = keep, level
		if level > 0 {
			w.settle()
		}
		at, err := w.measureRounds(w.c.name + standing(level))
		if err != nil {
			return rows, err
		}
		rows = append(rows, at...)
	}
	return rows, nil
}

// settle waits until the kernel has finished its background work for new links. On a busy machine it gives up after a
// while.
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

// ticks returns the processors' idle time and total time so far, proc_stat(5).
func ticks() (idle, all int) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	const fourth, eighth = 3, 8 // idle is the fourth; the guest times after the eighth are included in others
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

func standing(n int) string { return fmt.Sprintf(", %d present", n) }

// levelTimeout returns how long a side may take from one level to the next. The kernel itself needs some 10 ms per link
// at high levels, because its workers join multicast groups and check addresses for each.
func (w *world) levelTimeout() time.Duration { return 6 * w.options.limit }

// fill attaches more containers, some of them concurrently. It does nothing on a side that stays at the first level.
func (w *world) fill(s *side, from, to int) (ok bool, err error) {
	if strings.HasSuffix(s.name, figures.First) {
		return true, nil
	}
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
		if took > float64(w.levelTimeout().Milliseconds()) && from < to {
			return false, nil
		}
	}
	return true, nil
}

// standingJobs returns jobs for attachments that stay, each in its own container.
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

// networkOf returns the network of an attachment by number. Networks are filled in turn.
func (w *world) networkOf(number int) network {
	for _, n := range w.c.networks {
		if number < n.room {
			return n
		}
		number -= n.room
	}
	return w.c.networks[len(w.c.networks)-1]
}
