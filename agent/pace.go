package agent

import "time"

// pace puts kicks together: it is due when none came for quiet, or atMost after
// the first; after a rest prompt after the first.
type pace struct {
	timer  *time.Timer
	first  time.Time // zero: nothing is due
	last   time.Time // when it was done last
	prompt bool      // it is due in a moment, whatever comes
}

func newPace() *pace {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &pace{timer: t}
}

func (p *pace) kick() {
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

func (p *pace) due() <-chan time.Time { return p.timer.C }

func (p *pace) done() { p.first, p.last, p.prompt = time.Time{}, time.Now(), false }
