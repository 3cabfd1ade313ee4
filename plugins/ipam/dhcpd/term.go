package dhcpd

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead/fairlead/ipam"
)

// term has the times at which a configuration is renewed, rebound and expires. All times are since boot, including
// suspension, so changes of the clock do not affect them.
type term struct {
	Renew, Rebind, Expire time.Duration
	Pause                 time.Duration // longest pause after a failed attempt; 0: no limit
	Refused               string        // the server's message when it took the address back, or ""
}

// forever is the expiry of an infinite lease.
const forever = time.Duration(1<<63 - 1)

// infinite is an infinite lifetime in both protocols, in seconds.
const infinite = 0xffffffff

// newTerm starts a term with lengths from a server, in seconds. Lengths that are zero or out of order get the RFCs'
// defaults.
func newTerm(now time.Duration, renew, rebind, valid uint32, defaultRebind float64) term {
	if valid == infinite {
		return term{Renew: forever, Rebind: forever, Expire: forever}
	}
	length := func(s uint32) time.Duration { return time.Duration(s) * time.Second }
	t := term{Renew: now + length(renew), Rebind: now + length(rebind), Expire: now + length(valid)}
	if rebind == 0 || rebind >= valid {
		t.Rebind = now + time.Duration(float64(length(valid))*defaultRebind)
	}
	if renew == 0 || t.Renew >= t.Rebind {
		t.Renew = now + min(length(valid)/2, (t.Rebind-now)/7*4) // times 4 first does not fit after 83 years
	}
	return t
}

// over reports whether the term has ended.
func (t *term) over(now time.Duration) bool { return t.Refused != "" || now >= t.Expire }

// phase is the state of a lease: idle, or which action is due.
type phase int

const (
	idle phase = iota
	renewing
	rebinding
	lost
)

func (t *term) phase(now time.Duration) phase {
	switch {
	case t.over(now):
		return lost
	case now >= t.Rebind:
		return rebinding
	case now >= t.Renew:
		return renewing
	}
	return idle
}

// end returns when the phase at now ends, unless it is lost.
func (t *term) end(now time.Duration) time.Duration {
	switch t.phase(now) {
	case renewing:
		return t.Rebind
	case rebinding:
		return t.Expire
	}
	return t.Renew
}

// next returns when the next action is due. If tried, an attempt at now has failed, and the next one follows after half
// of the remaining phase (RFC 2131, 4.4.5). The minimum pause is shorter for short leases.
func (t *term) next(now time.Duration, tried bool) time.Duration {
	end := t.end(now)
	switch t.phase(now) {
	case idle:
		return end
	case lost:
		return now
	}
	if !tried {
		return now
	}
	least := min(time.Minute, max(time.Second, (t.Expire-t.Renew)/20))
	pause := max(least, (end-now)/2)
	if t.Pause > 0 {
		pause = min(pause, t.Pause)
	}
	return min(end, now+pause)
}

// backoff computes the pauses between unanswered messages. Each is twice the last, up to a maximum, with 10% jitter, so
// that thousands of clients do not send in step.
type backoff struct{ pause, greatest time.Duration }

const firstPause = 250 * time.Millisecond // a new bridge port may drop packets for that long

func newBackoff(greatest time.Duration) *backoff {
	return &backoff{min(firstPause, greatest), greatest}
}

func (b *backoff) next() time.Duration {
	p := b.pause
	b.pause = min(2*b.pause, b.greatest)
	return p + time.Duration((rand.Float64()-0.5)*0.2*float64(p))
}

// inFlight limits how many messages wait for an answer at the same time. A bridge floods each message to every port.
// Thousands at once would delay each other and be resent before the first was delivered.
type inFlight struct{ slots chan struct{} }

// maxInFlight is the maximum number of messages that wait for an answer. After inFlightTime a message no longer counts,
// so that one without an answer does not block others.
const (
	maxInFlight  = 64
	inFlightTime = 250 * time.Millisecond
)

// acquire waits for a slot. The slot is free again after release, or after inFlightTime at the latest.
func (a *inFlight) acquire(ctx context.Context) (release func(), err error) {
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var once sync.Once
	free := func() { once.Do(func() { <-a.slots }) }
	t := time.AfterFunc(inFlightTime, free)
	return func() { t.Stop(); free() }, nil
}

func uptime() time.Duration { return ipam.Uptime() }
