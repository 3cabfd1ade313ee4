package bgp_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/bgp"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// process is a speaker that runs in a namespace.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu   sync.Mutex
	last outputLine
}

func speak(t *testing.T, netns string) *process {
	t.Helper()
	p := &process{cmd: exec.Command("nsenter", "--net="+netns, "--", "/proc/self/exe", "speaker")}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Args[3] = exe
	log := &strings.Builder{}
	p.cmd.Stderr = log
	out, err1 := p.cmd.StdoutPipe()
	in, err2 := p.cmd.StdinPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.listen(out)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of the speaker in %s:\n%s", netns, log)
		}
	})
	return p
}

func (p *process) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var s outputLine
		if json.Unmarshal(lines.Bytes(), &s) == nil {
			p.mu.Lock()
			p.last = s
			p.mu.Unlock()
		}
	}
}

func (p *process) kill() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() }

func (p *process) send(t *testing.T, what command) {
	t.Helper()
	raw, err := json.Marshal(what)
	if err == nil {
		_, err = fmt.Fprintf(p.in, "%s\n", raw)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *process) latest() outputLine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *process) learned() string {
	var out []string
	for _, l := range p.latest().Learned {
		out = append(out, fmt.Sprintf("%s%s", l.Dst, l.Via))
	}
	return strings.Join(out, " ")
}

// wants waits until the speaker has learned the expected routes.
func (p *process) wants(t *testing.T, want string) {
	t.Helper()
	kerneltest.Eventually(t, func() error {
		if have := p.learned(); have != want {
			return fmt.Errorf("learned %s, want %s", have, want)
		}
		return nil
	})
}

// bird is a BIRD process in a namespace.
type bird struct {
	netns, socket, conf string
	cmd                 *exec.Cmd
}

// birdConfig returns the configuration of a router of another network. It announces some routes, of both families over
// one session.
func birdConfig(id string, asn int, routes string, neighbour string) string {
	var four, six string
	for r := range strings.FieldsSeq(routes) {
		if strings.Contains(r, ":") {
			six += "route " + r + " blackhole;\n"
		} else {
			four += "route " + r + " blackhole;\n"
		}
	}
	return fmt.Sprintf(`router id %s;
protocol device {}
protocol static four { ipv4; %s }
protocol static six { ipv6; %s }
protocol bgp node {
	local %s as %d;
	neighbor %s as 64512;
	graceful restart on;
	graceful restart time 120;
	connect retry time 1;
	connect delay time 1;
	error wait time 1, 2;
	ipv4 { import all; export where source = RTS_STATIC; next hop self; };
	ipv6 { import all; export where source = RTS_STATIC; next hop address 2001:db8::%s; };
}
`, id, four, six, id, asn, neighbour, id[strings.LastIndexByte(id, '.')+1:])
}

func startBird(t *testing.T, netns, conf string) *bird {
	t.Helper()
	dir := t.TempDir()
	b := &bird{netns: netns, socket: filepath.Join(dir, "ctl"), conf: filepath.Join(dir, "bird.conf")}
	if err := os.WriteFile(b.conf, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	b.cmd = exec.Command("nsenter", "--net="+netns, "--", "bird", "-f", "-c", b.conf, "-s", b.socket, "-P", filepath.Join(dir, "pid"))
	log := &strings.Builder{}
	b.cmd.Stderr = log
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		if t.Failed() {
			t.Logf("log of bird:\n%s", log)
		}
	})
	kerneltest.Eventually(t, func() error { return kerneltest.Listens(b.socket) })
	return b
}

func (b *bird) ask(t *testing.T, words ...string) string {
	t.Helper()
	return kerneltest.Run(t, append([]string{"birdc", "-s", b.socket}, words...)...)
}

// has waits until bird has, or no longer has, a route through the node.
func (b *bird) has(t *testing.T, want bool, route string) {
	t.Helper()
	kerneltest.Eventually(t, func() error {
		if have := b.ask(t, "show", "route", "protocol", "node"); strings.Contains(have, route) != want {
			return errors.New(have)
		}
		return nil
	})
}

// link connects namespaces with a switch in the test's namespace. Their addresses are .1, .2 and so on.
func link(t *testing.T, n int) (hosts []string) {
	t.Helper()
	kerneltest.Host(t)
	kerneltest.Run(t, "ip", "link", "add", "br0", "up", "type", "bridge")
	for i := range n {
		ns, port := kerneltest.Netns(t), fmt.Sprint("p", i)
		kerneltest.Run(t, "ip", "link", "add", port, "up", "master", "br0", "type", "veth", "peer", "name", "eth0", "netns", ns)
		for _, c := range []string{"ip link set lo up", "ip link set eth0 up", fmt.Sprintf("ip addr add 192.0.2.%d/24 dev eth0", i+1), fmt.Sprintf("ip addr add 2001:db8::%d/64 dev eth0 nodad", i+1)} {
			kerneltest.In(t, ns, strings.Fields(c)...)
		}
		kerneltest.AddrsInUse(t, ns)
		hosts = append(hosts, ns)
	}
	return hosts
}

func addrs(s string) (out []netip.Addr) {
	for f := range strings.FieldsSeq(s) {
		out = append(out, netip.MustParseAddr(f))
	}
	return out
}

// nodeConfig returns the configuration of a cluster node's speaker.
func nodeConfig(neighbours ...bgp.Neighbour) bgp.Config {
	return bgp.Config{ASN: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Local: addrs("192.0.2.1 2001:db8::1"), Neighbours: neighbours,
		Advertise: prefixes("10.244.0.0/26 10.244.9.7/32 fd00:244::/122")}
}

// TestBird checks that a node and a router exchange routes of both families, withdraw them, and recover from a session
// reset. Equal routes through two routers are both used. A neighbour that is down delays nothing.
func TestBird(t *testing.T) {
	t.Parallel()
	ns := link(t, 3)
	b := startBird(t, ns[1], birdConfig("192.0.2.2", 65000, "10.244.1.0/26 fd00:244::40/122", "192.0.2.1"))
	p := speak(t, ns[0])
	first := bgp.Neighbour{Address: netip.MustParseAddr("192.0.2.2"), ASN: 65000}
	c := nodeConfig(first, bgp.Neighbour{Address: netip.MustParseAddr("192.0.2.9"), ASN: 64512})
	p.send(t, command{Config: c})
	const both = "10.244.1.0/26[192.0.2.2] fd00:244::40/122[2001:db8::2]"
	p.wants(t, both)
	for _, r := range []string{"10.244.0.0/26", "10.244.9.7/32", "fd00:244::/122", "via 192.0.2.1 on eth0", "via 2001:db8::1 on eth0"} {
		b.has(t, true, r)
	}
	if state := p.latest().States["192.0.2.2"]; state != "ESTABLISHED" {
		t.Errorf("the session is %q", state)
	}

	c.Advertise = prefixes("10.244.0.0/26 10.244.2.0/26")
	p.send(t, command{Config: c})
	b.has(t, true, "10.244.2.0/26")
	b.has(t, false, "10.244.9.7/32")
	b.has(t, false, "fd00:244::/122")

	b.ask(t, "disable", "six")
	p.wants(t, "10.244.1.0/26[192.0.2.2]")
	b.ask(t, "enable", "six")
	p.wants(t, both)
	b.ask(t, "restart", "node")
	kerneltest.Until(t, func() bool { return p.latest().States["192.0.2.2"] == "ESTABLISHED" })
	p.wants(t, both)

	startBird(t, ns[2], birdConfig("192.0.2.3", 65000, "10.244.1.0/26", "192.0.2.1"))
	c.Neighbours = append(c.Neighbours, bgp.Neighbour{Address: netip.MustParseAddr("192.0.2.3"), ASN: 65000})
	p.send(t, command{Config: c})
	p.wants(t, "10.244.1.0/26[192.0.2.2 192.0.2.3] fd00:244::40/122[2001:db8::2]")
	c.Neighbours = c.Neighbours[:1]
	p.send(t, command{Config: c})
	p.wants(t, both)
}

// TestLinkLocalNeighbour checks that a node exchanges routes with a router that has a link-local address, over a session
// between such addresses.
func TestLinkLocalNeighbour(t *testing.T) {
	t.Parallel()
	ns := link(t, 2)
	for i, host := range ns {
		kerneltest.In(t, host, "ip", "addr", "add", fmt.Sprintf("fe80::%d/64", i+1), "dev", "eth0", "nodad")
	}
	conf := birdConfig("192.0.2.2", 65000, "fd00:244::40/122", "fe80::1%eth0")
	conf = strings.Replace(conf, "local 192.0.2.2", "local fe80::2", 1)
	b := startBird(t, ns[1], conf)
	p := speak(t, ns[0])
	p.send(t, command{Config: nodeConfig(bgp.Neighbour{Address: netip.MustParseAddr("fe80::2%eth0"), ASN: 65000})})
	b.has(t, true, "fd00:244::/122")
	p.wants(t, "fd00:244::40/122[2001:db8::2]")
}

// TestLinkLocalNextHop checks that a node learns the IPv6 routes of a router without a global IPv6 address.
func TestLinkLocalNextHop(t *testing.T) {
	t.Parallel()
	ns := link(t, 2)
	kerneltest.In(t, ns[1], "ip", "addr", "del", "2001:db8::2/64", "dev", "eth0")
	for i, host := range ns {
		kerneltest.In(t, host, "ip", "addr", "add", fmt.Sprintf("fe80::%d/64", i+1), "dev", "eth0", "nodad")
	}
	conf := birdConfig("192.0.2.2", 65000, "fd00:244::40/122", "fe80::1%eth0")
	conf = strings.NewReplacer("local 192.0.2.2", "local fe80::2", "next hop address 2001:db8::2;", "next hop self;").Replace(conf)
	startBird(t, ns[1], conf)
	p := speak(t, ns[0])
	p.send(t, command{Config: nodeConfig(bgp.Neighbour{Address: netip.MustParseAddr("fe80::2%eth0"), ASN: 65000})})
	p.wants(t, "fd00:244::40/122[fe80::2]")
}

// TestAgentRestartKeepsRoutes kills or stops an agent and starts it again. Its neighbour keeps the agent's routes meanwhile, and the
// agent keeps the neighbour's routes from the kernel.
func TestAgentRestartKeepsRoutes(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, p *process){
		"killed": func(_ *testing.T, p *process) { p.kill() },
		"stopped": func(t *testing.T, p *process) {
			p.send(t, command{Stop: true})
			if err := p.cmd.Wait(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := link(t, 2)
			b := startBird(t, ns[1], birdConfig("192.0.2.2", 65000, "10.244.1.0/26 fd00:244::40/122", "192.0.2.1"))
			p := speak(t, ns[0])
			c := nodeConfig(bgp.Neighbour{Address: netip.MustParseAddr("192.0.2.2"), ASN: 65000})
			p.send(t, command{Config: c})
			const both = "10.244.1.0/26[192.0.2.2] fd00:244::40/122[2001:db8::2]"
			p.wants(t, both)
			b.has(t, true, "10.244.0.0/26")
			b.has(t, true, "fd00:244::/122")

			lost := watchRoutes(t, b, "10.244.0.0/26", "fd00:244::/122")
			end(t, p)
			time.Sleep(time.Second)
			p = speak(t, ns[0])
			kept := []backend.Learned{{Dst: netip.MustParsePrefix("10.244.1.0/26"), Via: addrs("192.0.2.2")}, {Dst: netip.MustParsePrefix("10.244.8.0/26"), Via: addrs("192.0.2.2")}}
			p.send(t, command{Config: c, Kept: kept})
			kerneltest.Until(t, func() bool { return strings.Contains(p.learned(), "10.244.8.0/26[192.0.2.2]") })
			p.wants(t, both) // a route that no neighbour announces again is removed, but only after every neighbour has finished
			kerneltest.Eventually(t, func() error {
				say := b.ask(t, "show", "protocols", "all", "node")
				if strings.Contains(say, "Established") && !strings.Contains(say, "Stale") {
					return nil
				}
				return errors.New(say)
			})
			if l := lost(); l != "" {
				t.Errorf("meanwhile the neighbour lacked %s", l)
			}
		})
	}
}

// watchRoutes polls for routes and reports which were missing at any time.
func watchRoutes(t *testing.T, b *bird, routes ...string) (lost func() string) {
	stop, done := make(chan struct{}), make(chan string)
	go func() {
		missed := ""
		for {
			select {
			case <-stop:
				done <- missed
				return
			case <-time.After(20 * time.Millisecond):
			}
			out, _ := exec.Command("birdc", "-s", b.socket, "show", "route", "protocol", "node").CombinedOutput()
			for _, r := range routes {
				if !strings.Contains(string(out), r) && missed == "" {
					missed = r + " in\n" + string(out)
				}
			}
		}
	}()
	return func() string { close(stop); return <-done }
}
