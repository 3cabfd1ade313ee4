package cluster

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// slowLink is the netem configuration of each switch port. A round trip takes a tenth of a second, and four percent of
// round trips lose a packet.
const slowLink = "delay 50ms 5ms loss 2%"

// TestSlowLossyLinks checks hosts with slow, lossy links. Agents retry their requests to the store, and containers lose
// only the packets that the link loses, also while an agent restarts.
func TestSlowLossyLinks(t *testing.T) {
	kerneltest.Needs(t, "netem")
	c := newCluster(t, 2, 1, vxlanNet)
	a, b := c.Nodes[0], c.Nodes[1]
	for _, n := range c.Nodes {
		_, err := c.Switch(t.Context(), strings.Fields("tc qdisc add dev "+n.Name+" root netem "+slowLink)...)
		must(t, err)
	}
	attach(t, a, "c1", "pods")
	to := attach(t, b, "c1", "pods")
	if elapsed := wantReach(t, a, "c1", to); elapsed < 80*time.Millisecond {
		t.Fatalf("an ARP request and a ping took %v: the link is not slow", elapsed)
	}
	p, err := a.Probe("c1", to)
	must(t, err)
	waitForAnswers(t, p)
	time.Sleep(10 * time.Second)
	calm, err := p.Stop()
	must(t, err)
	p, err = a.Probe("c1", to)
	must(t, err)
	waitForAnswers(t, p)
	for _, n := range c.Nodes {
		n.Agent.Kill()
		must(t, n.Start())
		must(t, c.Ready(t.Context()))
	}
	waitForAnswers(t, p)
	l, err := p.Stop()
	must(t, err)
	t.Logf("before the restarts: %s; during them: %s", calm, l)
	const inFlight = 120 // the round trip of the last packets, at one packet per millisecond
	expected := float64(l.Sent) * float64(calm.Lost) / float64(calm.Sent)
	chance := 5 * math.Sqrt(expected*(1+float64(l.Sent)/float64(calm.Sent))) // five standard deviations
	if calm.Sent < 100 || float64(l.Lost) > inFlight+expected+chance {
		t.Errorf("%s; before the restarts: %s", l, calm)
	}
	before := state(t, b)
	_, err = b.IP(t.Context(), "neigh flush dev fl-vx.1 nud permanent")
	must(t, err)
	kerneltest.Eventually(t, func() error {
		if now := state(t, b); now != before {
			return fmt.Errorf("the state is\n%s\nwant\n%s", now, before)
		}
		return nil
	})
	wantReach(t, a, "c1", attach(t, b, "last", "pods"))
}
