package dhcpd

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead/fairlead/ipam"
)

// term is how long what a network gave holds. All are times since the machine
// started, which nobody can set, suspension included.
type term struct {
	Renew, Rebind, Expire time.Duration
	Refused               string // the server took it back, in its words; "": it did not
}

// forever is when a lease without an end ends.
const forever = time.Duration(1<<63 - 1)

// infinite is a lifetime without end as both protocols have it, in seconds.
const infinite = 0xffffffff

// newTerm begins a term with lengths in seconds as a server gave them; a zero
// one, or one out of order, is as the RFCs say by default.
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
		t.Renew = now + min(length(valid)/2, (t.Rebind-now)*4/7)
	}
	return t
}

// over tells whether it holds no more.
func (t *term) over(now time.Duration) bool { return t.Refused != "" || now >= t.Expire }

// phase is what is to be done with a term at a time.
type phase int

const (
	resting phase = iota
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
	return resting
}

// next is when something is to be done, after a try at now that failed if
// tried. Source: RFC 2131, 4.4.5: half of what remains of the phase, but the
// least pause is shorter for leases that are.
func (t *term) next(now time.Duration, tried bool) time.Duration {
	end := t.Renew
	switch t.phase(now) {
	case renewing:
		end = t.Rebind
	case rebinding:
		end = t.Expire
	case lost:
		return now
	}
	if end == t.Renew {
		return end
	}
	if !tried {
		return now
	}
	least := min(time.Minute, max(time.Second, (t.Expire-t.Renew)/20))
	return min(end, now+max(least, (end-now)/2))
}

// backoff are the pauses between messages that nobody answers: each twice the
// last, up to a greatest, and a tenth more or less, so that thousands of
// clients do not speak in step.
type backoff struct{ pause, greatest time.Duration }

const firstPause = 250 * time.Millisecond // a bridge's port may be deaf for as long

func newBackoff(greatest time.Duration) *backoff {
	return &backoff{min(firstPause, greatest), greatest}
}

func (b *backoff) next() time.Duration {
	p := b.pause
	b.pause = min(2*b.pause, b.greatest)
	return p + time.Duration((rand.Float64()-0.5)*0.2*float64(p))
}

// air bounds how many messages wait for an answer at the same time. A bridge
// hands each to every port: thousands at once would be in their own way, and be
// sent again before the first was heard.
type air struct{ slots chan struct{} }

// onAir is how many may wait, fresh how long one counts as waiting: one that no
// server answers must not keep others quiet.
const (
	onAir = 64
	fresh = 250 * time.Millisecond
)

// take waits for a slot, which is free again when it is given back, or soon.
func (a *air) take(ctx context.Context) (giveBack func(), err error) {
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var once sync.Once
	free := func() { once.Do(func() { <-a.slots }) }
	t := time.AfterFunc(fresh, free)
	return func() { t.Stop(); free() }, nil
}

func uptime() time.Duration { return ipam.Uptime() }
