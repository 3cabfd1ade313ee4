package enforce

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// cutNode is a node, the test's host, with an enforcer that the test tells about pods and policies.
type cutNode struct {
	t     *testing.T
	e     *Enforcer
	log   *kerneltest.Output
	stop  func()
	world []func(*policy.Compiler) // all changes so far
}

func newCutNode(t *testing.T) *cutNode {
	t.Helper()
	kerneltest.Host(t)
	for _, key := range []string{"ipv4.ip_forward=1", "ipv6.conf.all.forwarding=1"} {
		kerneltest.Run(t, "sysctl", "-qw", "net."+key)
	}
	if loose := kerneltest.Run(t, "sysctl", "-n", "net.netfilter.nf_conntrack_tcp_loose"); loose != "1\n" {
		t.Fatalf("nf_conntrack_tcp_loose is %s", loose)
	}
	n := &cutNode{t: t, log: &kerneltest.Output{}}
	n.change(func(c *policy.Compiler) { c.SetNamespace("x", nil) })
	n.start()
	return n
}

// start runs an enforcer that knows the world as it is now.
func (n *cutNode) start() {
	n.t.Helper()
	n.e = New(Options{Node: "n1", Log: slog.New(slog.NewTextHandler(n.log, nil))})
	clear(n.e.missing)
	for _, f := range n.world {
		n.e.update(f)
	}
	s, err := openSockets()
	must(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	e := n.e
	go func() { ended <- e.program(ctx, s) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			n.t.Errorf("the enforcer ended: %v", err)
		}
		s.close()
	})
	n.t.Cleanup(n.stop)
	kerneltest.Until(n.t, e.isInForce)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *cutNode) change(f func(*policy.Compiler)) {
	n.world = append(n.world, f)
	if n.e != nil {
		n.e.update(f)
	}
}

// written waits until the kernel has all changes. The first table being in force says nothing about later changes.
func (n *cutNode) written() {
	n.t.Helper()
	kerneltest.Until(n.t, func() bool {
		n.e.mu.Lock()
		defer n.e.mu.Unlock()
		return n.e.inForce && !n.e.unwritten
	})
}

// cutPod is a pod, in a namespace of its own.
type cutPod struct {
	n     *cutNode
	name  string
	netns string
	addrs [2]netip.Addr

	bind string // address of its sockets for UDP; "": all
}

// pod adds a pod with a link to the host: 10.0.0.NUMBER and fd00::NUMBER.
func (n *cutNode) pod(name string, number int) *cutPod {
	n.t.Helper()
	p := &cutPod{n: n, name: name, netns: kerneltest.Netns(n.t), addrs: [2]netip.Addr{netip.MustParseAddr(fmt.Sprint("10.0.0.", number)), netip.MustParseAddr(fmt.Sprint("fd00::", number))}}
	link := "pod-" + name
	kerneltest.Run(n.t, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", p.netns)
	kerneltest.Run(n.t, "ip", "link", "set", link, "up")
	kerneltest.Run(n.t, "ip", "addr", "add", "fe80::1/64", "dev", link, "nodad")
	kerneltest.Run(n.t, "ip", "addr", "add", "169.254.1.1/32", "dev", link)
	kerneltest.In(n.t, p.netns, "ip", "link", "set", "lo", "up")
	kerneltest.In(n.t, p.netns, "ip", "link", "set", "eth0", "up")
	for i, via := range []string{"169.254.1.1", "fe80::1"} {
		family := []string{"-4", "-6"}[i]
		kerneltest.In(n.t, p.netns, "ip", "addr", "add", p.addrs[i].String(), "dev", "eth0", "nodad")
		kerneltest.In(n.t, p.netns, "ip", family, "route", "add", "default", "via", via, "dev", "eth0", "onlink")
		kerneltest.Run(n.t, "ip", family, "route", "add", p.addrs[i].String(), "dev", link)
	}
	n.setPod(name, p.addrs[:])
	return p
}

func (n *cutNode) setPod(name string, addrs []netip.Addr) {
	n.change(func(c *policy.Compiler) {
		c.SetEndpoint(&policy.Endpoint{Namespace: "x", Name: name, Node: "n1", Labels: map[string]string{"app": name}, Addresses: addrs})
	})
}

// policy sets a NetworkPolicy.
func (n *cutNode) policy(name, spec string) {
	n.t.Helper()
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = "x", name
	must(n.t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	n.change(func(c *policy.Compiler) { c.SetNetworkPolicy(p) })
}

func (n *cutNode) deletePolicy(name string) {
	n.change(func(c *policy.Compiler) { c.DeletePolicy(policy.NetworkPolicyID("x", name)) })
}

// cuts waits until a number of connections is cut.
func (n *cutNode) cuts(want int) {
	n.t.Helper()
	kerneltest.Eventually(n.t, func() error {
		if have := n.cutNow(); have != want {
			return fmt.Errorf("%d connections are cut, want %d\n%s", have, want, n.state())
		}
		return nil
	})
}

// state returns what the node's kernel knows of its connections and of policy, and the enforcer's log.
func (n *cutNode) state() string {
	n.t.Helper()
	return kerneltest.Run(n.t, "conntrack", "-L", "-o", "id") + kerneltest.Run(n.t, "nft", "list", "ruleset") + n.log.String()
}

// cutNow returns the number of connections that are cut.
func (n *cutNode) cutNow() int {
	n.t.Helper()
	out, err := exec.Command("nft", "list", "table", "inet", policy.CutTableName).CombinedOutput()
	if err != nil && strings.Contains(string(out), "No such file") {
		return 0
	}
	must(n.t, err)
	sum := 0
	for _, set := range strings.Split(string(out), "elements = {")[1:] {
		list, _, _ := strings.Cut(set, "}")
		sum += strings.Count(list, ",") + 1
	}
	// A table without elements should not exist. The rules of a new one follow its elements, in another transaction.
	if sum == 0 || !strings.Contains(string(out), " drop\n") {
		return -1
	}
	return sum
}

// conn is a connection of TCP.
type conn struct {
	t              *testing.T
	n              *cutNode
	client, server net.Conn
}

// servicePorts is the difference between the port of a Service and that of its pods.
const servicePorts = 10000

// connect opens a connection to a port of a server, by its own address or by that of a Service.
func (p *cutPod) connect(server *cutPod, to netip.AddrPort) *conn {
	t := p.n.t
	t.Helper()
	c := &conn{t: t, n: p.n}
	var l net.Listener
	kerneltest.Eventually(t, func() error { // the process that another test is starting may still have a copy of a closed socket
		return kerneltest.Inside(server.netns, func() (err error) {
			l, err = net.Listen("tcp", net.JoinHostPort("", fmt.Sprint(to.Port()%servicePorts)))
			return err
		})
	})
	defer l.Close()
	must(t, kerneltest.Inside(p.netns, func() (err error) {
		c.client, err = net.DialTimeout("tcp", to.String(), kerneltest.Slow(10*time.Second))
		return err
	}))
	var err error
	c.server, err = l.Accept()
	must(t, err)
	t.Cleanup(func() { c.client.Close(); c.server.Close() })
	c.passes(c.client, c.server)
	c.passes(c.server, c.client)
	return c
}

// passes sends a byte, which must arrive.
func (c *conn) passes(from, to net.Conn) {
	c.t.Helper()
	send(c.t, from)
	c.arrives(to)
}

// send sends a byte.
func send(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Write([]byte("x"))
	must(t, err)
}

func (c *conn) arrives(at net.Conn) {
	c.t.Helper()
	must(c.t, at.SetReadDeadline(time.Now().Add(kerneltest.Slow(20*time.Second))))
	if n, err := at.Read(make([]byte, 1)); n != 1 {
		c.t.Fatalf("from %s to %s: %v", at.RemoteAddr(), at.LocalAddr(), err)
	}
}

const silence = time.Second // some retransmissions

// silent checks that nothing arrives.
func (c *conn) silent(at net.Conn) {
	c.t.Helper()
	must(c.t, at.SetReadDeadline(time.Now().Add(silence)))
	if _, err := at.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("from %s to %s: read returns %v\n%s", at.RemoteAddr(), at.LocalAddr(), err, c.n.state())
	}
}

const (
	noIngress = "{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}"
	noEgress  = "{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}"
)

// TestCutTCP cuts connections of TCP. Then only one end sends. Meanwhile connections that policy allows go on. When policy
// allows the connection again, it goes on.
func TestCutTCP(t *testing.T) {
	t.Parallel()
	for _, closed := range []string{noIngress, noEgress} {
		for _, family := range []int{0, 1} {
			t.Run(fmt.Sprint(closed, family), func(t *testing.T) {
				t.Parallel()
				n := newCutNode(t)
				a, b, other := n.pod("a", 1), n.pod("b", 2), n.pod("c", 3)
				to := netip.AddrPortFrom(b.addrs[family], 80)
				cut := []*conn{a.connect(b, to), a.connect(b, to)} // one sends from the server, one from the client
				backward := b.connect(a, netip.AddrPortFrom(a.addrs[family], 80))
				third, fourth := other.connect(a, netip.AddrPortFrom(a.addrs[family], 81)), b.connect(other, netip.AddrPortFrom(other.addrs[family], 81))
				n.cutsOneWay(closed, cut, backward, third, fourth)
			})
		}
	}
}

// cutsOneWay applies a policy that cuts two connections. Of one, only the server sends then, and of the other, only the
// client. The allowed connections go on. Without the policy, those that were cut go on, too.
func (n *cutNode) cutsOneWay(closed string, cut []*conn, allowed ...*conn) {
	n.t.Helper()
	n.policy("closed", closed)
	n.cuts(2)
	send(n.t, cut[0].server)
	send(n.t, cut[1].client)
	cut[0].silent(cut[0].client)
	cut[1].silent(cut[1].server)
	for _, c := range allowed {
		c.passes(c.client, c.server)
		c.passes(c.server, c.client)
	}
	n.deletePolicy("closed")
	n.cuts(0)
	cut[0].arrives(cut[0].client)
	cut[1].arrives(cut[1].server)
}

// flow is a sender and a receiver of UDP. The sender sends numbered packets without pause: a slow machine may deliver one
// long after it passed the rules.
type flow struct {
	t        *testing.T
	from, to net.PacketConn
	sent     atomic.Uint64 // number of the last packet
	stop     func() (sent int)
}

// converse opens a conversation from a client to a server, in which then only one of them sends.
func converse(client, server *cutPod, to netip.AddrPort, serverSends bool) *flow {
	t := client.n.t
	t.Helper()
	socket := func(p *cutPod, port uint16) (c net.PacketConn) {
		must(t, kerneltest.Inside(p.netns, func() (err error) {
			c, err = net.ListenPacket("udp", net.JoinHostPort(p.bind, fmt.Sprint(port)))
			return err
		}))
		t.Cleanup(func() { c.Close() })
		return c
	}
	f := &flow{t: t, from: socket(client, 0), to: socket(server, to.Port()%servicePorts)}
	dst := net.Addr(net.UDPAddrFromAddrPort(to))
	_, err := f.from.WriteTo([]byte("x"), dst)
	must(t, err)
	must(t, f.to.SetReadDeadline(time.Now().Add(kerneltest.Slow(10*time.Second))))
	_, replies, err := f.to.ReadFrom(make([]byte, 1))
	must(t, err)
	if serverSends {
		f.from, f.to, dst = f.to, f.from, replies
	}
	f.start(dst)
	return f
}

// start begins to send.
func (f *flow) start(dst net.Addr) {
	f.t.Helper()
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			case <-time.After(time.Millisecond):
				number := binary.BigEndian.AppendUint64(nil, f.sent.Add(1))
				_, _ = f.from.WriteTo(number, dst) // a receiver that has gone answers by ICMP
			}
		}
	}()
	f.stop = sync.OnceValue(func() int { close(stop); return <-sent })
	f.t.Cleanup(func() { f.stop() })
	f.arrives()
}

// reads reports whether a packet with a number after a given one arrives within a limit.
func (f *flow) reads(after uint64, limit time.Duration) bool {
	f.t.Helper()
	must(f.t, f.to.SetReadDeadline(time.Now().Add(limit)))
	for {
		packet := make([]byte, 8)
		_, _, err := f.to.ReadFrom(packet)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		must(f.t, err)
		if binary.BigEndian.Uint64(packet) > after {
			return true
		}
	}
}

// arrives checks that a packet arrives that is sent from now on.
func (f *flow) arrives() {
	f.t.Helper()
	if !f.reads(f.sent.Load(), kerneltest.Slow(20*time.Second)) {
		f.t.Fatal("no packet arrives")
	}
}

// silent checks that none of the packets that are sent from now on arrive, or from a later time on if rules change.
func (f *flow) silent() {
	f.t.Helper()
	quiet := func(limit time.Duration) bool {
		before := f.sent.Load()
		for f.sent.Load() < before+20 {
			time.Sleep(5 * time.Millisecond)
		}
		return !f.reads(before+1, limit) // one may have been on its way
	}
	kerneltest.Until(f.t, func() bool { return quiet(200 * time.Millisecond) })
	if !quiet(300 * time.Millisecond) {
		f.t.Errorf("a packet arrives after others did not")
	}
}

// ping sends echo requests without pause.
func (p *cutPod) ping(to netip.Addr) *kerneltest.Output {
	t := p.n.t
	t.Helper()
	out := &kerneltest.Output{}
	cmd := exec.Command("nsenter", "--net="+p.netns, "ping", "-n", "-i", "0.01", to.String())
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	kerneltest.Until(t, func() bool { return replies(out) > 1 })
	return out
}

func replies(o *kerneltest.Output) int { return strings.Count(o.String(), "bytes from") }

// TestCutUDP cuts conversations of UDP in which one end sends without pause, and pings.
func TestCutUDP(t *testing.T) {
	t.Parallel()
	n := newCutNode(t)
	a, b := n.pod("a", 1), n.pod("b", 2)
	var cut, rest []*flow
	for family, port := range []uint16{53, 54} {
		cut = append(cut, converse(a, b, netip.AddrPortFrom(b.addrs[family], port), true), converse(a, b, netip.AddrPortFrom(b.addrs[family], port+10), false))
		rest = append(rest, converse(b, a, netip.AddrPortFrom(a.addrs[family], port), true), converse(b, a, netip.AddrPortFrom(a.addrs[family], port+10), false))
	}
	pings := []*kerneltest.Output{a.ping(b.addrs[0]), a.ping(b.addrs[1])}
	n.policy("closed", noIngress)
	n.cuts(len(cut) + len(pings))
	for _, f := range cut {
		f.silent()
	}
	before := []int{replies(pings[0]), replies(pings[1])}
	for _, f := range rest {
		f.arrives()
	}
	for i, p := range pings {
		if more := replies(p) - before[i]; more > 0 {
			t.Errorf("%d more replies to pings", more)
		}
	}
	n.policy("closed", strings.Replace(noIngress, "[Ingress]", "[Ingress], ingress: [{ports: [{port: 53, protocol: UDP}]}]", 1))
	n.cuts(len(cut) + len(pings) - 1)
	cut[0].arrives()
	n.deletePolicy("closed")
	n.cuts(0)
	for _, f := range cut {
		f.arrives()
	}
	for i, p := range pings {
		kerneltest.Until(t, func() bool { return replies(p) > before[i] })
	}
}
