package agent

import "time"

// debouncer merges kicks. It is due when no kick came for quiet, or atMost after the first. After an idle time of rest,
// it is due prompt after the first.
type debouncer struct {
	timer  *time.Timer
	first  time.Time // of the pending kicks; zero if none is pending
	last   time.Time // time of the last reconciliation
	prompt bool      // due soon; more kicks do not delay it
}

func newDebouncer() *debouncer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &debouncer{timer: t}
}

func (p *debouncer) kick() {
	now := time.Now()
	switch {
	case p.prompt:
	case p.first.IsZero() && now.Sub(p.last) >= rest:
		p.first, p.prompt = now, true
		p.timer.Reset(prompt)
	case p.first.IsZero():
		p.first = now
		p.timer.Reset(quiet)
	default:
		p.timer.Reset(min(quiet, p.first.Add(atMost).Sub(now)))
	}
}

func (p *debouncer) due() <-chan time.Time { return p.timer.C }

func (p *debouncer) done() { p.first, p.last, p.prompt = time.Time{}, time.Now(), false }
