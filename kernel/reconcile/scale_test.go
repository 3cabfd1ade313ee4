package reconcile_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// TestScalePeers measures neighbours, forwarding entries and routes of 1,000 peers: "make bench-scale", docs/scale.md.
func TestScalePeers(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_SCALE")
	const count, rounds = 1000, 7
	times := map[string][]time.Duration{}
	steps := []string{"make all", "compare all", "one peer more", "list all", "remove all", "look up all"}
	for range rounds {
		t.Run("round", func(t *testing.T) {
			kerneltest.Host(t)
			existingVXLAN(t)
			e, err := kernel.Open(nil, kernel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			r := reconcile.New(e, kernel.Host, agentOwner())
			do := func(step string, made, removed int, want kernel.Objects) {
				began := time.Now()
				rep := r.Reconcile(want)
				times[step] = append(times[step], time.Since(began))
				if rep.Err() != nil || rep.Applied != made || rep.Removed != removed {
					t.Errorf("%s: made %d, removed %d: %v", step, rep.Applied, rep.Removed, rep.Err())
				}
			}
			r.Reconcile(vx())
			all := append(vx(), peers(count)...)
			do(steps[0], 3*count, 0, all)
			do(steps[1], 0, 0, all)
			do(steps[2], 3, 0, append(vx(), peers(count+1)...))
			r.Invalidate()
			do(steps[3], 0, 0, append(vx(), peers(count+1)...))
			began := time.Now()
			if list, err := r.Diverted(); err != nil || len(list) > 0 {
				t.Errorf("diverted: %v, %v", list, err)
			}
			times[steps[5]] = append(times[steps[5]], time.Since(began))
			do(steps[4], 0, 3*(count+1), vx())
		})
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for _, s := range steps {
		slices.Sort(times[s])
		t.Logf("%s: median %v, %v to %v", s, times[s][rounds/2].Round(10*time.Microsecond), times[s][0].Round(10*time.Microsecond), times[s][rounds-1].Round(10*time.Microsecond))
	}
	t.Logf("heap %d KB", m.HeapInuse>>10)
}
