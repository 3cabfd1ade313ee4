package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// rolloutsVariable sets the number of rolling restarts in their case.
const rolloutsVariable = "FAIRLEAD_ROLLOUTS"

// refusals records who refuses connections on a node. A TCP that answers a SYN with a reset gives it the sequence
// number zero (RFC 9293, 3.10.7.1); kube-proxy answers with an ICMP error.
const refusals = `
table ip refusals {
	set resets { type ipv4_addr . inet_service . ipv4_addr; flags dynamic,timeout; timeout 1h; size 65535; }
	set errors { type ipv4_addr . icmp_code . ipv4_addr; flags dynamic,timeout; timeout 1h; size 65535; }
	chain record {
		tcp flags rst,ack / rst,ack,syn,fin tcp sequence 0 add @resets { ip saddr . tcp sport . ip daddr }
		icmp type destination-unreachable add @errors { ip saddr . icmp code . ip daddr }
	}
	chain in { type filter hook prerouting priority -400; jump record; }
	chain out { type filter hook output priority -400; jump record; }
}
`

// closedPort is a port on which no node listens.
const closedPort = 9

// recordRefusals starts to record who refuses connections. The end function returns what each node recorded.
func (c *cluster) recordRefusals(t *testing.T) (end func() string) {
	t.Helper()
	for _, n := range c.hosts {
		n.write(t, "/run/refusals.nft", refusals)
		n.shell(t, "nft -f /run/refusals.nft")
		if out, err := n.onNode("repeat", "tcp", at(n.ip, closedPort), "1"); err != nil || !strings.Contains(out, "refused") {
			t.Fatalf("a closed port of %s: %v: %s", n.name, err, out)
		}
	}
	return func() string {
		t.Helper()
		var all strings.Builder
		for _, n := range c.hosts {
			list := n.shell(t, "date; nft list table ip refusals; nft delete table ip refusals")
			if !strings.Contains(list, fmt.Sprintf("%s . %d . %s", n.ip, closedPort, n.ip)) {
				t.Errorf("%s did not record that its closed port refused a connection:\n%s", n.name, list)
			}
			fmt.Fprintf(&all, "%s:\n%s\n", n.name, list)
		}
		return all.String()
	}
}

// rollouts returns the number of rolling restarts in their case.
func rollouts(t *testing.T) int {
	t.Helper()
	text := os.Getenv(rolloutsVariable)
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: want a number above zero", rolloutsVariable, text)
	}
	return n
}
