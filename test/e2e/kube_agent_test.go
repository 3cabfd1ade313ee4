package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

const agentStore = "http://" + controlIP + ":2379"

// startAgents joins the nodes by our agent, as its manifest has it but for the store,
// the range of pods, and tunnels between all. The wire reaches pods by any node.
func (c *cluster) startAgents(t *testing.T) {
	t.Helper()
	for _, n := range c.hosts {
		n.shell(t, "ctr -n k8s.io images import /mnt/e2e/bin/fairlead-image.tar")
	}
	raw, err := os.ReadFile("../../contrib/kubernetes/fairlead-agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for from, to := range map[string]string{
		"http://10.0.0.1:2379": agentStore, "{cidr: 10.244.0.0/16}": fmt.Sprintf("{cidr: %s, block: 24}", podRange), "{type: host-gw, when: direct}, ": "",
	} {
		if strings.Count(text, from) != 1 {
			t.Fatalf("the manifest has not one %s", from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	c.control.write(t, "/run/fairlead-agent.yaml", text)
	c.need(t, "apply", "-f", "/run/fairlead-agent.yaml")
	c.need(t, "-n", "kube-system", "rollout", "status", "daemonset/fairlead-agent", "--timeout=120s")
	for _, n := range c.hosts {
		eventually(t, 30*time.Second, func() error {
			out, err := n.run("/mnt/e2e/fairlead", "agent", "status", "--json")
			if peers := fmt.Sprintf(`"peers": %d`, len(c.hosts)-1); err == nil && !strings.Contains(out, peers) {
				err = fmt.Errorf("the agent of %s says %s", n.name, out)
			}
			return err
		})
	}
	c.wire.ip(t, "route replace "+podRange+" via "+c.hosts[0].ip)
}

// agentsRestarted starts all agents anew while requests go on, as an upgrade does.
func agentsRestarted(t *testing.T, c *cluster) string {
	return c.underLoad(t, c.web(t, linger), func() {
		c.need(t, "-n", "kube-system", "rollout", "restart", "daemonset/fairlead-agent")
		c.need(t, "-n", "kube-system", "rollout", "status", "daemonset/fairlead-agent", "--timeout=120s")
	})
}
