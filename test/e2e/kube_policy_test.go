package e2e

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// waitForPolicy waits until each node has the table of network policy, which the manifest enables.
func (c *cluster) waitForPolicy(t *testing.T) {
	t.Helper()
	for _, n := range c.hosts {
		kerneltest.Within(t, time.Minute, func() error {
			_, err := n.run("nft", "list", "table", "inet", "fairlead-policy")
			return err
		})
	}
}
