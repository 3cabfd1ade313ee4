package nftable_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// flow is a sender and a receiver of UDP on the loopback device of the test's host.
type flow struct {
	from, to *net.UDPConn
}

func newFlow(t testing.TB, from, to string, port uint16) *flow {
	t.Helper()
	socket := func(addr string, port uint16) (c *net.UDPConn) {
		// The process that another test is starting may still have a copy of a closed socket.
		kerneltest.Eventually(t, func() (err error) {
			c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), port)))
			return err
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	return &flow{socket(from, 0), socket(to, port)}
}

// send sends a packet. The kernel delivers it on the loopback device, or drops it, meanwhile.
func (f *flow) send(t testing.TB) {
	t.Helper()
	if _, err := f.from.WriteTo([]byte("x"), f.to.LocalAddr()); err != nil {
		t.Fatal(err)
	}
}

// arrives waits for a packet up to the limit.
func (f *flow) arrives(limit time.Duration) bool {
	_ = f.to.SetReadDeadline(time.Now().Add(limit))
	_, _, err := f.to.ReadFrom(make([]byte, 16))
	return err == nil
}

// received returns the number of packets that have arrived.
func (f *flow) received() (n int) {
	for f.arrives(20 * time.Millisecond) {
		n++
	}
	return n
}

// loopback adds addresses to the loopback device.
func loopback(t testing.TB, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		kerneltest.Run(t, "ip", "addr", "add", a, "dev", "lo", "nodad")
	}
}

// TestPackets sends packets through a map to verdicts, sets of intervals and sets of concatenated ranges, in both
// families.
func TestPackets(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	loopback(t, "10.1.0.1", "10.1.0.2", "10.1.0.3", "10.2.0.9", "10.2.0.10", "fd00:1::1", "fd00:1::2", "fd00:1::3", "fd00:2::9", "fd00:2::a")
	want := nftable.New("inet", "fairlead-packets")
	want.Sets["peers4"] = &nftable.Set{Type: "ipv4_addr : verdict", Elements: map[string]string{
		"10.1.0.1": "goto profile", "10.1.0.2": "drop", "10.2.0.9": "jump profile", "10.2.0.10": "jump profile"}}
	want.Sets["peers6"] = &nftable.Set{Type: "ipv6_addr : verdict", Elements: map[string]string{
		"fd00:1::1": "goto profile", "fd00:1::2": "drop", "fd00:2::9": "jump profile", "fd00:2::a": "jump profile"}}
	want.Sets["blocks4"] = &nftable.Set{Type: "ipv4_addr", Interval: true, Elements: map[string]string{"10.2.0.0-10.2.0.9": "", "10.2.0.11-10.2.0.20": ""}}
	want.Sets["blocks6"] = &nftable.Set{Type: "ipv6_addr", Interval: true, Elements: map[string]string{"fd00:2::-fd00:2::9": ""}}
	want.Sets["ports"] = &nftable.Set{Type: "inet_proto . inet_service", Interval: true, Elements: map[string]string{"udp . 5000-5009": "", "tcp . 5010": ""}}
	rules := func(texts ...string) (out []nftable.Rule) {
		for _, text := range texts {
			out = append(out, nftable.Rule{Text: text})
		}
		return out
	}
	want.Chains["profile"] = &nftable.Chain{Rules: rules("ip saddr @blocks4 drop", "ip6 saddr @blocks6 drop", "meta l4proto . th dport @ports accept")}
	want.Chains["input"] = &nftable.Chain{Hook: "type filter hook input priority 0", Rules: rules("ip saddr vmap @peers4", "ip6 saddr vmap @peers6", "counter", "drop")}
	p := open(t)
	sync(t, p, want)
	for _, c := range []struct {
		from4, from6 string
		port         uint16
		pass         bool
	}{
		{"10.1.0.1", "fd00:1::1", 5000, true}, // the profile accepts it
		{"10.1.0.1", "fd00:1::1", 5009, true},
		{"10.1.0.1", "fd00:1::1", 4999, true},   // goto: the end of the profile is the end of the base chain
		{"10.1.0.2", "fd00:1::2", 5000, false},  // drop in the map
		{"10.1.0.3", "fd00:1::3", 5000, false},  // not in the map
		{"10.2.0.9", "fd00:2::9", 5000, false},  // the last of an interval
		{"10.2.0.10", "fd00:2::a", 5000, true},  // the next address
		{"10.2.0.10", "fd00:2::a", 5010, false}, // jump: after the profile, the base chain drops; the port is TCP's
		{"10.2.0.10", "fd00:2::a", 4999, false},
	} {
		for from, to := range map[string]string{c.from4: "10.1.0.1", c.from6: "fd00:1::1"} {
			f := newFlow(t, from, to, c.port)
			got := false
			for try := 0; !got && (try == 0 || c.pass && try < 20); try++ { // a busy machine drops packets: its queues are full
				f.send(t)
				got = f.arrives(kerneltest.Slow(50 * time.Millisecond))
			}
			if got != c.pass {
				t.Errorf("from %s to port %d: passes %v, want %v", from, c.port, got, c.pass)
			}
			f.from.Close()
			f.to.Close()
		}
	}
	if found := sync(t, p, want); found != nil {
		t.Errorf("after packets, Sync finds %q", found)
	}
}

// closing returns a table that drops what 10.1.0.2 sends, in one of many ways. Chains and sets of different versions have
// different names, except one set, whose type changes with every seventh version. So does the hook's priority.
func closing(version int) *nftable.Table {
	t := nftable.New("inet", "fairlead-switch")
	name := func(s string) string { return fmt.Sprintf("%s%d", s, version%5) }
	set := &nftable.Set{Type: "ipv4_addr", Interval: version/7%2 == 0, Elements: map[string]string{"10.1.0.2": ""}}
	pairs := &nftable.Set{Type: "ipv4_addr . inet_proto", Interval: true, Elements: map[string]string{"10.1.0.2 . udp": ""}}
	verdicts := &nftable.Set{Type: "ipv4_addr : verdict", Elements: map[string]string{"10.1.0.2": "goto " + name("closed")}}
	for i := range 100 {
		addr := fmt.Sprintf("10.%d.%d.%d", 5+version%50, i/250, i%250)
		set.Elements[addr], pairs.Elements[addr+" . tcp"], verdicts.Elements[addr] = "", "", "goto "+name("closed")
	}
	t.Sets[name("set")], t.Sets[name("pairs")], t.Sets[name("map")], t.Sets["same"] = set, pairs, verdicts, set
	t.Chains[name("closed")] = &nftable.Chain{Rules: []nftable.Rule{{Text: "drop"}}}
	rule := []string{
		"ip saddr @" + name("set") + " drop", "ip saddr vmap @" + name("map"),
		"ip saddr @same goto " + name("closed"), "ip saddr . meta l4proto @" + name("pairs") + " drop",
	}[version%4]
	t.Chains["input"] = &nftable.Chain{Hook: fmt.Sprintf("type filter hook input priority %d", version/7), Rules: []nftable.Rule{{Text: rule}}}
	return t
}

// TestNeverOpen replaces the content of a table again and again, while a sender that each content rejects sends packets
// without pause. None passes.
func TestNeverOpen(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	loopback(t, "10.1.0.1", "10.1.0.2")
	f := newFlow(t, "10.1.0.2", "10.1.0.1", 5000)
	p := open(t)
	sync(t, p, closing(0))
	end := f.flood(t)
	versions := max(rounds(42), 15) // a new hook with each seventh
	for version := range versions {
		if version/7%2 == 0 {
			// A killed process has left a part of the next content.
			damaged(t, closing(version), fmt.Sprintf("add set TABLE pairs%d { type ipv4_addr . inet_proto; flags interval; elements = { 10.9.9.9 . tcp }; }", version%5))
			damaged(t, closing(version), fmt.Sprintf("add set TABLE set%d { type ipv4_addr; flags interval; elements = { 10.9.9.9 }; }", version%5))
			sync(t, p, closing(version))
			continue
		}
		apply(t, p, closing(version-1), closing(version))
	}
	if sent := end(); sent < 100 {
		t.Errorf("only %d packets were sent", sent)
	}
	if n := f.received(); n > 0 {
		t.Errorf("%d packets passed", n)
	}
	kerneltest.Run(t, "nft", "delete", "table", "inet", "fairlead-switch")
	f.send(t)
	if !f.arrives(kerneltest.Slow(5 * time.Second)) {
		t.Error("no packet passes without the table")
	}
}

// apply changes one table to another. It names everything as changed.
func apply(t testing.TB, p *nftable.Programmer, from, to *nftable.Table) {
	t.Helper()
	c := nftable.Changes{Chains: map[string]bool{}, Sets: map[string]bool{}}
	for _, table := range []*nftable.Table{from, to} {
		for name := range table.Chains {
			c.Chains[name] = true
		}
		for name := range table.Sets {
			c.Sets[name] = true
		}
	}
	if _, err := p.Apply(t.Context(), to, c); err != nil {
		t.Fatal(err)
	}
}

// flood sends packets until end is called, which returns their number. It sends without pause, and in virtual machines,
// whose processor it would keep busy, one in a millisecond.
func (f *flow) flood(t *testing.T) (end func() int) {
	stop, sent := make(chan struct{}), make(chan int)
	slow := os.Getenv("FAIRLEAD_SLOW") != ""
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			default:
			}
			if _, err := f.from.WriteTo([]byte("x"), f.to.LocalAddr()); err != nil {
				t.Error(err)
			}
			if slow {
				time.Sleep(time.Millisecond)
			}
		}
	}()
	return func() int {
		close(stop)
		return <-sent
	}
}
