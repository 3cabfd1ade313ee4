package enforce

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// TestPacketCost measures the cost of the node's rules for a packet: without policy, with ten policies that select the
// receiver, with others for 1,000 other pods, and while connections are cut. The states take turns. The system call that
// sends a packet also moves it from the socket through the forward hook to a namespace that drops it.
func TestPacketCost(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_POLICY_SCALE")
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	n.stop()
	kerneltest.Run(t, "nft", "add table inet tracking; add chain inet tracking c { type filter hook prerouting priority 0; }; add rule inet tracking c ct state new")
	n.policy("last", "{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}]}")
	for i := range 9 {
		n.policy(fmt.Sprint(i), "{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]}")
	}
	few := policy.New("n1")
	for _, change := range n.world {
		change(few)
	}
	n.change(func(c *policy.Compiler) { crowd(c, 1000) })
	ten, _ := few.Table()
	many, _ := n.e.compiler.Table()
	s, err := openSockets()
	must(t, err)
	defer s.close()
	f := newSender(a, b)
	states := []struct {
		name string
		set  func() error
	}{
		{"without policy", func() error { return n.rules(s, nil, 0) }},
		{"10 policies", func() error { return n.rules(s, ten, 0) }},
		{"10,000 policies", func() error { return n.rules(s, many, 0) }},
		{"10,000 policies, 1 connection cut", func() error { return n.rules(s, many, 1) }},
		{"10,000 policies, 10,000 connections cut", func() error { return n.rules(s, many, 10_000) }},
	}
	known, first := make([][]time.Duration, len(states)), make([][]time.Duration, len(states))
	for range 15 {
		for i, state := range states {
			must(t, state.set())
			known[i] = append(known[i], f.known())
			first[i] = append(first[i], f.first())
		}
	}
	for i, state := range states {
		t.Logf("%s: a packet of a known connection %s, the first one of a connection %s", state.name, spread(known[i]), spread(first[i]))
	}
}

// rules writes the rules of policy, if there are any, and cuts a number of connections.
func (n *cutNode) rules(s *sockets, table *nftable.Table, cut int) error {
	n.t.Helper()
	x := policy.Cut{TCP: map[policy.TCP]bool{}}
	for i := range cut {
		x.TCP[policy.TCP{Src: netip.AddrPortFrom(crowdAddr(1), uint16(i)), Dst: netip.AddrPortFrom(crowdAddr(2), 80)}] = true
	}
	_, err := s.cuts.Delete(n.t.Context(), policy.TableFamily, policy.CutTableName)
	if err == nil && cut > 0 {
		_, err = s.cuts.Sync(n.t.Context(), x.Table())
	}
	if err != nil {
		return err
	}
	if table == nil {
		_, err = s.rules.Delete(n.t.Context(), policy.TableFamily, policy.TableName)
	} else {
		_, err = s.rules.Sync(n.t.Context(), table)
	}
	return err
}

// sender sends packets of UDP to a pod that drops them.
type sender struct {
	t     *testing.T
	c     net.PacketConn
	entry string // conntrack's words for a connection in which both ends have sent
	to    netip.Addr
}

func newSender(a, b *cutPod) *sender {
	f := converse(a, b, netip.AddrPortFrom(b.addrs[0], 53), true)
	f.stop()
	kerneltest.In(f.t, b.netns, "nft", "add table ip sink; add chain ip sink c { type filter hook prerouting priority -300; policy drop; }")
	_, port, err := net.SplitHostPort(f.to.LocalAddr().String())
	must(f.t, err)
	return &sender{f.t, f.to, fmt.Sprintf("-I -p udp -s %s -d %s --sport %s --dport 53 -t 600 -u SEEN_REPLY", a.addrs[0], b.addrs[0], port), b.addrs[0]}
}

const packetCount = 20_000 // of one measurement

// known returns the time of a packet of a connection that exists.
func (s *sender) known() time.Duration {
	kerneltest.Run(s.t, "conntrack", "-F")
	kerneltest.Run(s.t, append([]string{"conntrack"}, strings.Fields(s.entry)...)...)
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.to, 53))
	return s.send(func(int) net.Addr { return to })
}

// first returns the time of a packet that begins a connection.
func (s *sender) first() time.Duration {
	kerneltest.Run(s.t, "conntrack", "-F")
	var to []net.Addr
	for i := range packetCount {
		to = append(to, net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.to, uint16(1000+i))))
	}
	return s.send(func(i int) net.Addr { return to[i] })
}

func (s *sender) send(to func(i int) net.Addr) time.Duration {
	began := threadTime(s.t)
	for i := range packetCount {
		_, err := s.c.WriteTo([]byte("x"), to(i))
		must(s.t, err)
	}
	return (threadTime(s.t) - began) / packetCount
}

// threadTime returns the processor time of the test's thread, getrusage(2). Other tests do not count.
func threadTime(t *testing.T) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var r syscall.Rusage
	must(t, syscall.Getrusage(thread, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// spread returns the median with the quartiles.
func spread(list []time.Duration) string {
	slices.Sort(list)
	n := len(list) - 1
	return fmt.Sprintf("%v (%v to %v)", list[n/2], list[n/4], list[n*3/4])
}
