package kernel

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestPoll checks that a long wait asks few questions, that a short one ends soon, and that poll ends with its context.
func TestPoll(t *testing.T) {
	t.Parallel()
	cause := errors.New("the caller gave up")
	ctx, end := context.WithCancelCause(context.Background())
	e := &Engine{ctx: ctx}
	for _, wait := range []time.Duration{0, 2 * time.Millisecond, 400 * time.Millisecond} {
		began, asked := time.Now(), 0
		yes, err := e.poll(func() (bool, error) { asked++; return time.Since(began) >= wait, nil })
		if !yes || err != nil {
			t.Errorf("after %v: %v, %v", wait, yes, err)
		}
		if asked > 70 || wait == 0 && asked != 1 { // 8 pauses of the least length, then each time an eighth more
			t.Errorf("%d questions in %v", asked, wait)
		}
	}
	failed := errors.New("no such link")
	if yes, err := e.poll(func() (bool, error) { return false, failed }); yes || err != failed {
		t.Errorf("after an error: %v, %v", yes, err)
	}
	if yes, err := e.poll(func() (bool, error) { end(cause); return false, nil }); yes || err != cause {
		t.Errorf("after the end of the context: %v, %v", yes, err)
	}
	if yes, err := e.pollFor(0, func() (bool, error) { time.Sleep(time.Millisecond); return false, nil }); yes || err != cause {
		t.Errorf("after the end of the context and of the limit: %v, %v", yes, err)
	}
}
