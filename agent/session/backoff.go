package session

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is the pause before the next attempt. It doubles, up to ten times the first one. Each pause is random in its
// upper half, so that a cluster's agents do not all send their requests as soon as the store starts.
type backoff struct{ first, now time.Duration }

func (b *backoff) longest() time.Duration { return 10 * b.first }

// wait pauses until the time is over or the context ends.
func (b *backoff) wait(ctx context.Context) {
	b.now = min(max(2*b.now, b.first), b.longest())
	_ = pause(ctx, b.now/2+rand.N(b.now/2))
}

func (b *backoff) reset() { b.now = 0 }
