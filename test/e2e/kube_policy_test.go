package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// enablePolicy applies the manifest with policy.enabled, and waits until each node has the table.
func (c *cluster) enablePolicy(t *testing.T) {
	t.Helper()
	var subnets []any
	for cidr := range strings.SplitSeq(c.family.pick(podRange, podRange6), ",") {
		subnets = append(subnets, map[string]any{"cidr": cidr, "assign": "podCIDR"})
	}
	c.renderAgents(t, kubernetes.Values{"policy": map[string]any{"enabled": true}, "network": map[string]any{"subnets": subnets}})
	c.applyAgents(t)
	for _, n := range c.hosts {
		kerneltest.Within(t, time.Minute, func() error {
			_, err := n.run("nft", "list", "table", "inet", "fairlead-policy")
			return err
		})
	}
}
