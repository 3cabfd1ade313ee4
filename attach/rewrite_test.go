package attach_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
)

// TestStateWhileRewritten checks that an ADD in progress never looks interrupted to GC, although it replaces its record's
// file each time it writes.
func TestStateWhileRewritten(t *testing.T) {
	t.Parallel()
	d := attach.Open(t.TempDir())
	r := record(d, owner)
	must(t, create(d, r))
	stop := make(chan struct{})
	end := make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				end <- nil
				return
			default:
			}
			if err := d.Write(r); err != nil {
				end <- err
				return
			}
		}
	}()
	begin := time.Now()
	for time.Since(begin) < time.Second && !t.Failed() {
		listed, err := d.List("")
		if err != nil || len(listed) != 1 || listed[0].State() != attach.StateAdding {
			t.Errorf("List: %v, %v", listed, err)
		}
		taken, err := d.TryTake(owner)
		if err == nil && taken.State() != attach.StateAdding {
			t.Errorf("TryTake: state %s, held %v", taken.State(), taken.IsHeld())
		}
	}
	close(stop)
	must(t, <-end)
	r.Unlock()
}
