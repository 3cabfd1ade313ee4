package agent

import "time"

// pace puts kicks together: it is due when none came for quiet, or atMost after
// the first.
type pace struct {
	timer *time.Timer
	first time.Time // zero: nothing is due
}

func newPace() *pace {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &pace{timer: t}
}

func (p *pace) kick() {
	now := time.Now()
	if p.first.IsZero() {
		p.first = now
	}
	p.timer.Reset(min(quiet, p.first.Add(atMost).Sub(now)))
}

func (p *pace) due() <-chan time.Time { return p.timer.C }

func (p *pace) done() { p.first = time.Time{} }
