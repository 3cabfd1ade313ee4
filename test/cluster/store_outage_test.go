package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// outageDuration returns how long the store is unreachable. FAIRLEAD_STORE_AWAY=1h makes it an hour.
func outageDuration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("FAIRLEAD_STORE_AWAY")
	if text == "" {
		return kerneltest.Slow(3 * time.Second)
	}
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

// TestStoreOutage makes the store unreachable. Containers are added and deleted from the host's own blocks, also across
// a restart of the agent. When the store is back, it receives the releases.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	outage := outageDuration(t)
	c := newCluster(t, 2, 1, vxlanNet)
	a, b, store := c.Nodes[0], c.Nodes[1], c.Stores[0]
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	wantReach(t, a, "c1", to)
	attached := 0
	wantNoLoss(t, a, "c1", to, func() {
		store.Process.Kill()
		for end := time.Now().Add(outage); attached < 2 || time.Now().Before(end); attached++ {
			name := fmt.Sprint("r", attached)
			wantReach(t, a, "c1", attach(t, b, name, "pods"))
			if attached == 1 {
				b.Agent.Kill()
				must(t, b.Start())
			}
			_, err := b.Fairlead(t.Context(), "del", "pods", name)
			must(t, err)
			_, err = b.IP(t.Context(), "netns del "+name)
			must(t, err)
			time.Sleep(min(outage/10, 10*time.Second))
		}
		must(t, store.Start())
		must(t, store.Wait(t.Context()))
		must(t, c.Ready(t.Context()))
		wantReach(t, a, "c1", attach(t, b, "last", "pods"))
	})
	kerneltest.Eventually(t, func() error {
		out, err := b.Cluster(t.Context(), "ipam", "check")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	t.Logf("the store was unreachable for %v; %d containers were added and deleted", outage, attached)
}
