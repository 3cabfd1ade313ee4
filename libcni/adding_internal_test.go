package libcni

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
)

// TestAddWaitsForGC checks that an ADD waits while a GC deletes its attachment, and that the wait ends with the ADD's
// context.
func TestAddWaitsForGC(t *testing.T) {
	t.Parallel()
	var a adding
	what := added{"n", cni.Attachment{ContainerID: "c", IfName: "eth0"}}
	collected, ok := a.collect(what)
	if !ok {
		t.Fatal("the GC cannot begin")
	}
	gone := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
	if _, err := a.begin(ctx, what, true); !errors.Is(err, gone) {
		t.Errorf("a cancelled ADD: %v", err)
	}
	if len(a.of("n")) != 0 {
		t.Error("the cancelled ADD counts as in progress")
	}
	time.AfterFunc(50*time.Millisecond, collected)
	end, err := a.begin(t.Context(), what, true)
	if err != nil || len(a.of("n")) != 1 {
		t.Fatalf("an ADD after the GC: %v", err)
	}
	unlock := a.lock()
	ended := make(chan struct{})
	go func() { end(nil); close(ended) }()
	select {
	case <-ended:
		t.Error("the end was noted without the lock")
	case <-time.After(20 * time.Millisecond):
	}
	unlock()
	<-ended
}
