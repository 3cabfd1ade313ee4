package cluster

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestClock makes the clock jump by years, forward and back. Traffic continues, containers can be added, and the agent
// restores what an administrator deletes.
func TestClock(t *testing.T) {
	kerneltest.Needs(t, "a clock of its own") // in a guest: on the host the clock is shared
	c := hosts(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	reach(t, a, "c1", to)
	const year = 365 * 24 * time.Hour
	through(t, a, "c1", to, func() {
		for i, by := range []time.Duration{3 * year, -6 * year, 3 * year} {
			jump(t, by)
			reach(t, a, "c1", attach(t, b, fmt.Sprint("c", i+2), "pods"))
			before := state(t, b)
			_, err := b.IP(t.Context(), "neigh flush dev fl-vx.1 nud permanent")
			must(t, err)
			soon(t, func() error {
				if now := state(t, b); now != before {
					return fmt.Errorf("there is\n%s\nand was\n%s", now, before)
				}
				return nil
			})
			must(t, c.Ready(t.Context()))
		}
	})
}

func jump(t *testing.T, by time.Duration) {
	t.Helper()
	now := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
	must(t, unix.Settimeofday(&now))
	t.Logf("the clock says %s", time.Now().Format(time.DateOnly))
}
