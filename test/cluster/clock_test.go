package cluster

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestClockJumps makes the clock jump by years, forward and back. Traffic continues, containers can be added, and the
// agent restores what an administrator deletes.
func TestClockJumps(t *testing.T) {
	kerneltest.Needs(t, "a clock of its own") // only in a VM: elsewhere the machine shares the clock
	c := newCluster(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	wantReach(t, a, "c1", to)
	const year = 365 * 24 * time.Hour
	for i, by := range []time.Duration{3 * year, -6 * year, 3 * year} {
		wantNoLoss(t, a, "c1", to, func() {
			jumpClock(t, by)
			wantReach(t, a, "c1", attach(t, b, fmt.Sprint("c", i+2), "pods"))
		})
		before := state(t, b)
		_, err := b.IP(t.Context(), "neigh flush dev fl-vx.1 nud permanent") // may lose a packet, so none is counted here
		must(t, err)
		kerneltest.Eventually(t, func() error {
			if now := state(t, b); now != before {
				return fmt.Errorf("the state is\n%s\nwant\n%s", now, before)
			}
			return nil
		})
		must(t, c.Ready(t.Context()))
	}
}

func jumpClock(t *testing.T, by time.Duration) {
	t.Helper()
	now := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
	must(t, unix.Settimeofday(&now))
	t.Logf("the date is now %s", time.Now().Format(time.DateOnly))
}
