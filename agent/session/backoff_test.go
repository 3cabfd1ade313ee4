package session

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/agent/store"
)

// outage is a store that does not answer. It counts the attempts.
type outage struct {
	store.Store
	lasts    time.Duration // of each watch
	attempts int
}

func (o *outage) Get(context.Context, string) (store.Entry, error) {
	o.attempts++
	return store.Entry{}, store.ErrUnavailable
}

func (o *outage) Watch(context.Context, string, int64, func(store.Batch) error) error {
	o.attempts++
	time.Sleep(o.lasts)
	return store.ErrUnavailable
}

func (o *outage) Commit(context.Context, ...store.Op) (int64, error) {
	return 0, store.ErrUnavailable
}

// TestRetriesBackOff checks that a session's attempts become rare while the store does not answer: thousands of agents
// would overload an API server that starts. After a watch that lasted, the next attempt is soon.
func TestRetriesBackOff(t *testing.T) {
	t.Parallel()
	watch := func(ctx context.Context, s *Session) { s.watchKey(ctx, "alive/a", 1) }
	for name, c := range map[string]struct {
		run         func(context.Context, *Session)
		lasts       time.Duration
		least, most int // in ten minutes
	}{
		"watch":             {watch, 0, 60, 130},
		"begin":             {func(ctx context.Context, s *Session) { s.Run(ctx) }, 0, 60, 130},
		"watch that lasted": {watch, 20 * time.Second, 28, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := &outage{lasts: c.lasts}
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
				defer stop()
				c.run(ctx, newSession(o, "1", "x"))
				if o.attempts < c.least || o.attempts > c.most {
					t.Errorf("%d attempts in 10 minutes, want %d to %d", o.attempts, c.least, c.most)
				}
			})
		})
	}
}
