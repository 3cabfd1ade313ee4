package enforce

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestCutEntryEnds checks that a connection of TCP stays cut after its entry has ended while both ends live: because it
// expired, or because other software deleted it. Then either end sends first. A restart and a pass do not change that.
func TestCutEntryEnds(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	var list []*conn
	for _, addr := range b.addrs {
		list = append(list, a.connect(b, netip.AddrPortFrom(addr, 80)), a.connect(b, netip.AddrPortFrom(addr, 80)))
	}
	n.policy("closed", noIngress)
	n.cuts(4)
	kerneltest.Run(t, "conntrack", "-F")
	for i, c := range list {
		send(t, []net.Conn{c.server, c.client}[i%2])
	}
	check := func() {
		t.Helper()
		for i, c := range list {
			c.silent([]net.Conn{c.client, c.server}[i%2])
		}
		n.cuts(4)
	}
	check()
	n.stop()
	n.start()
	wake(n.e.cut)
	check()
	n.deletePolicy("closed")
	n.cuts(0)
	for i, c := range list {
		c.arrives([]net.Conn{c.client, c.server}[i%2])
	}
}

// nat adds a Service and masquerading for packets that leave by a link.
func (n *cutNode) nat(rules ...string) {
	n.t.Helper()
	kerneltest.Run(n.t, "nft", "add table inet nat; add chain inet nat pre { type nat hook prerouting priority -100; }; add chain inet nat post { type nat hook postrouting priority 100; }")
	for _, r := range rules {
		kerneltest.Run(n.t, "nft", "add rule inet nat "+r)
	}
}

// TestCutService cuts connections by a Service: policy decides about the pod behind it. A connection by the same Service
// to another pod goes on, also that of a pod with itself.
func TestCutService(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b, other := n.pod("a", 1), n.pod("b", 2), n.pod("c", 3)
	for f, ip := range []string{"ip", "ip6"} {
		vip := []string{"10.96.0.1", "fd96::1"}[f]
		to := func(p *cutPod) string { return netip.AddrPortFrom(p.addrs[f], 80).String() }
		if f == 0 {
			n.nat()
		}
		for _, r := range []string{
			fmt.Sprintf("pre %s daddr %s tcp dport 10080 dnat %s to %s", ip, vip, ip, to(b)), fmt.Sprintf("pre %s daddr %s tcp dport 20080 dnat %s to %s", ip, vip, ip, to(other)),
			fmt.Sprintf("post %s saddr %s %s daddr %s masquerade", ip, b.addrs[f], ip, b.addrs[f]),
		} {
			kerneltest.Run(t, "nft", "add rule inet nat "+r)
		}
		service := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(vip), port) }
		if f == 1 {
			kerneltest.Run(t, "ip", "addr", "add", "fd99::1/128", "dev", "lo") // to masquerade with
		}
		cut, allowed, itself := a.connect(b, service(10080)), a.connect(other, service(20080)), b.connect(b, service(10080))
		n.policy("closed", noIngress)
		n.cuts(1 + f) // also that of the other family
		send(t, cut.server)
		cut.silent(cut.client)
		for _, c := range []*conn{allowed, itself} {
			c.passes(c.server, c.client)
			c.passes(c.client, c.server)
		}
		n.deletePolicy("closed")
		n.cuts(0)
		cut.arrives(cut.client)
	}
}

// TestCutMasqueraded cuts a connection to an outside address whose source the node translates. The outside end sends.
func TestCutMasqueraded(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, outside := n.pod("a", 1), n.pod("outside", 9)
	n.change(func(c *policy.Compiler) { c.DeleteEndpoint("x", "outside") })
	kerneltest.Run(t, "ip", "addr", "add", "192.0.2.1/32", "dev", "pod-outside")
	n.nat("post oifname pod-outside masquerade")
	c := a.connect(outside, netip.AddrPortFrom(outside.addrs[0], 80))
	if from := c.server.RemoteAddr().String(); strings.HasPrefix(from, a.addrs[0].String()) {
		t.Fatalf("the source is %s", from)
	}
	f := converse(a, outside, netip.AddrPortFrom(outside.addrs[0], 53), true)
	n.policy("closed", noEgress)
	n.cuts(2)
	send(t, c.server)
	c.silent(c.client)
	f.silent()
	n.deletePolicy("closed")
	c.arrives(c.client)
	f.arrives()
}

// TestNodeIsNotCut checks that connections of a pod with its node go on, and are not among those that are cut.
func TestNodeIsNotCut(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	var l net.Listener
	must(t, kerneltest.Inside(b.netns, func() (err error) { l, err = net.Listen("tcp", ":80"); return err }))
	defer l.Close()
	host, err := net.DialTimeout("tcp", netip.AddrPortFrom(b.addrs[0], 80).String(), kerneltest.Slow(10*time.Second))
	must(t, err)
	pod, err := l.Accept()
	must(t, err)
	defer pod.Close()
	defer host.Close()
	cut := a.connect(b, netip.AddrPortFrom(b.addrs[0], 81))
	n.policy("closed", strings.Replace(noIngress, "[Ingress]", "[Ingress, Egress]", 1))
	n.cuts(1)
	own := &conn{t: t, n: n, client: host, server: pod}
	own.passes(host, pod)
	own.passes(pod, host)
	send(t, cut.client)
	cut.silent(cut.server)
}

// TestCutToNode cuts connections of a pod to its own node when a ClusterNetworkPolicy forbids them. Those that the node
// opened go on.
func TestCutToNode(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a := n.pod("a", 1)
	node := &cutPod{n: n, name: "node", netns: fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), syscall.Gettid()), addrs: [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}
	for _, addr := range node.addrs {
		kerneltest.Run(t, "ip", "addr", "add", addr.String(), "dev", "lo", "nodad")
	}
	n.change(func(c *policy.Compiler) { c.SetNode(&policy.Node{Name: "n1", Addresses: node.addrs[:]}) })
	var cut, rest []*conn
	var flows []*flow
	for f, addr := range node.addrs {
		cut = append(cut, a.connect(node, netip.AddrPortFrom(addr, 80)), a.connect(node, netip.AddrPortFrom(addr, 81)))
		rest = append(rest, node.connect(a, netip.AddrPortFrom(a.addrs[f], 80)))
		node.bind = addr.String()
		flows = append(flows, converse(a, node, netip.AddrPortFrom(addr, uint16(53+10*f)), true), converse(a, node, netip.AddrPortFrom(addr, uint16(54+10*f)), false))
	}
	n.policy("closed", noEgress) // allows the own node
	denied := &policyv1alpha2.ClusterNetworkPolicy{}
	denied.Name = "nodes"
	must(t, yaml.UnmarshalStrict([]byte(`{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: {}}]}]}`), &denied.Spec))
	time.Sleep(2 * shortest) // a pass
	n.cuts(0)
	n.change(func(c *policy.Compiler) { c.SetClusterPolicy(denied) })
	n.cuts(len(cut) + len(flows))
	for i, c := range cut {
		one, other := c.client, c.server
		if i%2 == 0 {
			one, other = other, one
		}
		send(t, one)
		c.silent(other)
	}
	for _, f := range flows {
		f.silent()
	}
	kerneltest.Run(t, "conntrack", "-D", "-p", "tcp", "--dport", "80", "-d", node.addrs[0].String())
	cut[0].silent(cut[0].client) // the node sends again
	for _, c := range rest {
		c.passes(c.client, c.server)
		c.passes(c.server, c.client)
	}
	n.change(func(c *policy.Compiler) { c.DeletePolicy(policy.ClusterPolicyID("nodes")) })
	n.cuts(0)
	for i, c := range cut {
		c.arrives([]net.Conn{c.client, c.server}[i%2])
	}
	for _, f := range flows {
		f.arrives()
	}
}

// TestCutRestart stops and starts the agent again and again, while a forbidden conversation and a forbidden connection
// send. Nothing passes. An agent that starts after policy has allowed the conversation lets it go on.
func TestCutRestart(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	f, c := converse(a, b, netip.AddrPortFrom(b.addrs[0], 53), true), a.connect(b, netip.AddrPortFrom(b.addrs[1], 80))
	n.policy("closed", noIngress)
	n.cuts(2)
	f.silent()
	send(t, c.server)
	for range 5 {
		n.stop()
		n.start()
		wake(n.e.cut)
		time.Sleep(3 * shortest)
	}
	f.silent()
	c.silent(c.client)
	n.stop()
	if cut := n.cutNow(); cut != 2 {
		t.Errorf("without an agent, %d are cut", cut)
	}
	f.silent()
	n.e = nil
	n.deletePolicy("closed")
	n.start()
	n.cuts(0)
	f.arrives()
	c.arrives(c.client)
}

// TestCutNextPod checks that a pod with the address of an earlier one continues its connections only as policy allows, and
// that what was cut of the earlier one does not harm it.
func TestCutNextPod(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	f, c := converse(a, b, netip.AddrPortFrom(b.addrs[0], 53), true), a.connect(b, netip.AddrPortFrom(b.addrs[0], 80))
	n.policy("closed", noIngress)
	n.cuts(2)
	f.silent()
	become := func(app string) {
		n.change(func(c *policy.Compiler) {
			c.SetEndpoint(&policy.Endpoint{Namespace: "x", Name: "next", Node: "n1", Labels: map[string]string{"app": app}, Addresses: b.addrs[:], Created: time.Unix(1, 0)})
			c.DeleteEndpoint("x", "b")
		})
	}
	become("other")
	n.cuts(0)
	f.arrives()
	c.passes(c.server, c.client)
	become("b")
	n.cuts(2)
	f.silent()
	n.change(func(c *policy.Compiler) { c.DeleteEndpoint("x", "next") })
	n.cuts(0)
}

// TestCutFlushed checks that the agent repairs what other software did to its table, while the sender sends, and cuts what
// began meanwhile.
func TestCutFlushed(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	f := converse(a, b, netip.AddrPortFrom(b.addrs[0], 53), true)
	n.policy("closed", noIngress)
	n.cuts(1)
	f.silent()
	for _, damage := range []string{"flush ruleset", "delete table inet fairlead-policy-cut", "flush table inet fairlead-policy-cut", "flush set inet fairlead-policy-cut connections",
		"add element inet fairlead-policy-cut connections { 5 }; add element inet fairlead-policy-cut tcp4 { 10.0.0.1 . 5 . 10.0.0.2 . 6 }"} {
		kerneltest.Run(t, "nft", damage)
		n.cuts(1)
		kerneltest.Eventually(t, func() error {
			if out := kerneltest.Run(t, "nft", "list", "ruleset"); !strings.Contains(out, "ct id @connections counter") || !strings.Contains(out, "goto ingress-") {
				return fmt.Errorf("after %s: %s", damage, out)
			}
			return nil
		})
		f.silent()
	}
	n.deletePolicy("closed")
	n.cuts(0)
	f.arrives()
}

// TestCutRelated cuts a data connection of FTP when policy forbids the connection that announced it.
func TestCutRelated(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	kerneltest.Run(t, "nft", `add table inet ftp; add ct helper inet ftp f { type "ftp" protocol tcp; }; add chain inet ftp c { type filter hook prerouting priority 0; }; add rule inet ftp c tcp dport 21 ct helper set "f"`)
	control := a.connect(b, netip.AddrPortFrom(b.addrs[0], 21))
	say := func(line string) {
		_, err := io.WriteString(control.server, line)
		must(t, err)
		_, err = io.ReadFull(control.client, make([]byte, len(line)))
		must(t, err)
	}
	const dataPort = 10 << 8
	say("220 Ready\r\n")
	// The server announces a port for data: passive mode, RFC 959. The helper reads lines that begin with a packet. It
	// ignores packets around one that was sent twice, as happens on a busy machine.
	kerneltest.Eventually(t, func() error {
		say(fmt.Sprintf("227 Entering Passive Mode (%s,10,0)\r\n", strings.ReplaceAll(b.addrs[0].String(), ".", ",")))
		if list := kerneltest.Run(t, "conntrack", "-L", "expect"); !strings.Contains(list, fmt.Sprintf("dport=%d ", dataPort)) {
			return fmt.Errorf("the helper expects no connection to port %d: %s", dataPort, list)
		}
		return nil
	})
	n.policy("closed", strings.Replace(noIngress, "[Ingress]", "[Ingress], ingress: [{ports: [{port: 21}]}]", 1))
	data := a.connect(b, netip.AddrPortFrom(b.addrs[0], dataPort))
	time.Sleep(3 * shortest) // a pass
	data.passes(data.server, data.client)
	n.policy("closed", noIngress)
	n.cuts(2)
	send(t, data.server)
	data.silent(data.client)
	n.deletePolicy("closed")
	data.arrives(data.client)
}

// TestCutZone cuts connections in a connection tracking zone of other software.
func TestCutZone(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	kerneltest.Run(t, "nft", "add table inet zones; add chain inet zones c { type filter hook prerouting priority -300; }; add rule inet zones c ct zone set 5")
	f, c := converse(a, b, netip.AddrPortFrom(b.addrs[0], 53), true), a.connect(b, netip.AddrPortFrom(b.addrs[1], 80))
	if listed := kerneltest.Run(t, "conntrack", "-L", "--zone", "5"); strings.Count(listed, "zone=5") != 2 {
		t.Fatalf("zone 5 has %s", listed)
	}
	n.policy("closed", noIngress)
	n.cuts(2)
	send(t, c.server)
	f.silent()
	c.silent(c.client)
}

// TestCutFails checks that a failure to list the connections is reported, and that what was cut stays cut.
func TestCutFails(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	f := converse(a, b, netip.AddrPortFrom(b.addrs[0], 53), true)
	n.policy("closed", noIngress)
	n.cuts(1)
	n.stop()
	s, err := openSockets()
	must(t, err)
	defer s.close()
	s.conntrack.Close()
	e := New(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)})
	clear(e.missing)
	c := &cutter{e: e, conntrack: s.conntrack, p: s.cuts}
	must(t, c.pass(t.Context())) // nothing is known yet
	for _, change := range n.world {
		e.update(change)
	}
	must(t, e.write(t.Context(), s.rules))
	if err := c.pass(t.Context()); err == nil {
		t.Error("a pass without a socket succeeds")
	}
	if cut := n.cutNow(); cut != 1 {
		t.Errorf("%d connections are cut", cut)
	}
	f.silent()
}
