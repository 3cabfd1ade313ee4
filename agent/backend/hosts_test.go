package backend_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/agent/backend/wgd"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// host is one of three namespaces. Hosts a and b share a link, and c has another. The test's own namespace is the
// switch of both links and the router between them.
type host struct {
	node           *cluster.Node
	netns          string
	container      string // path of a namespace
	blocks         []netip.Prefix
	keys           backend.Keys
	socket         string
	four, six      netip.Addr // the container's addresses
	gateway4, way6 netip.Addr
	reconciler     *reconcile.Reconciler
}

// lan creates the hosts, with addresses of the given families, and their containers.
func lan(t *testing.T, v4, v6 bool) []*host {
	t.Helper()
	kerneltest.Host(t)
	sh(t, "", `sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
		ip link add br0 type bridge; ip link add br1 type bridge; ip link set br0 up; ip link set br1 up
		ip addr add 192.0.2.254/24 dev br0; ip addr add 198.51.100.254/24 dev br1
		ip addr add 2001:db8::fe/64 dev br0 nodad; ip addr add 2001:db8:1::fe/64 dev br1 nodad`)
	var hosts []*host
	for i, at := range []struct{ bridge, four, six, via4, via6 string }{
		{"br0", "192.0.2.1/24", "2001:db8::1/64", "192.0.2.254", "2001:db8::fe"},
		{"br0", "192.0.2.2/24", "2001:db8::2/64", "192.0.2.254", "2001:db8::fe"},
		{"br1", "198.51.100.3/24", "2001:db8:1::3/64", "198.51.100.254", "2001:db8:1::fe"},
	} {
		h := &host{netns: kerneltest.Netns(t), container: kerneltest.Netns(t), blocks: prefixes(fmt.Sprintf("10.244.0.%d/26 fd00:244::%x/122", i*64, i*64))}
		h.keys, h.socket = backend.Keys{File: filepath.Join(t.TempDir(), "key")}, filepath.Join(t.TempDir(), "wg.sock")
		h.gateway4, h.way6 = h.blocks[0].Addr().Next(), h.blocks[1].Addr().Next()
		h.four, h.six = h.gateway4.Next(), h.way6.Next()
		kerneltest.Run(t, strings.Fields(fmt.Sprintf("ip link add p%d master %s type veth peer name eth0 netns %s", i, at.bridge, h.netns))...)
		kerneltest.Run(t, "ip", "link", "set", fmt.Sprint("p", i), "up")
		sh(t, h.netns, "ip link set lo up; ip link set eth0 up; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
		var addresses []string
		if v4 {
			sh(t, h.netns, "ip addr add "+at.four+" dev eth0; ip route add default via "+at.via4)
			addresses = append(addresses, at.four)
		}
		if v6 {
			sh(t, h.netns, "ip addr add "+at.six+" dev eth0 nodad; ip -6 route add default via "+at.via6)
			addresses = append(addresses, at.six)
		}
		h.node = node([]string{"a", "b", "c"}[i], strings.Join(addresses, " "))
		var err error
		if h.node.WireGuard, h.node.Previous, err = h.keys.Rotate(time.Now(), 0); err != nil {
			t.Fatal(err)
		}
		kerneltest.AddrsInUse(t, h.netns)
		hosts = append(hosts, h)
	}
	kerneltest.AddrsInUse(t, "")
	return hosts
}

func sh(t *testing.T, netns, script string) string {
	t.Helper()
	argv := []string{"bash", "-euc", script}
	if netns == "" {
		return kerneltest.Run(t, argv...)
	}
	return kerneltest.In(t, netns, argv...)
}

// contain creates the host's container, with routes and an MTU.
func (h *host) contain(t *testing.T, mtu int) {
	t.Helper()
	kerneltest.In(t, h.netns, strings.Fields(fmt.Sprintf("ip link add c0 mtu %d type veth peer name eth0 mtu %d netns %s", mtu, mtu, h.container))...)
	sh(t, h.netns, fmt.Sprintf(`ip link set c0 up; ip addr add %s/26 dev c0; ip addr add %s/122 dev c0 nodad`, h.gateway4, h.way6))
	sh(t, h.container, fmt.Sprintf(`ip link set lo up; ip link set eth0 up; ip addr add %s/26 dev eth0; ip addr add %s/122 dev eth0 nodad
		ip route add default via %s; ip -6 route add default via %s`, h.four, h.six, h.gateway4, h.way6))
	kerneltest.AddrsInUse(t, h.netns)
	kerneltest.AddrsInUse(t, h.container)
}

// join applies a host's objects with the agent's reconciler and returns the result.
func (h *host) join(t *testing.T, n *cluster.Network, hosts []*host) backend.Result {
	t.Helper()
	in := backend.Input{Network: n, Self: h.node, Blocks: h.blocks, Underlay: backend.Underlay{Link: "eth0", MTU: 1500}, KeyFile: h.keys.File,
		Program: []string{"/proc/self/exe", wgd.Command}, Socket: h.socket}
	for _, p := range hosts {
		if p != h {
			in.Peers = append(in.Peers, backend.Peer{Node: p.node, Dst: p.blocks})
		}
	}
	r := backend.Compile(in)
	h.reconcile(t, append(r.Objects, backend.Clamp(r.Tunnels)...))
	return r
}

func (h *host) reconcile(t *testing.T, want kernel.Objects) {
	t.Helper()
	ns, err := netns.Open(h.netns)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		if h.reconciler == nil {
			e, err := kernel.Open(nil, kernel.Options{})
			if err != nil {
				return err
			}
			h.reconciler = reconcile.New(e, kernel.Host, reconcile.Owner{Protocol: backend.Protocol, Alias: backend.LinkAlias(""), Table: backend.Table})
			t.Cleanup(func() { h.reconcile(t, nil); e.Close() }) // a user-space device ends with its link
		}
		return h.reconciler.Reconcile(want).Err()
	})
	if err != nil {
		t.Fatalf("%s: %v", h.node.Name, err)
	}
}

// crossing is a test case: how the hosts should be connected.
type crossing struct {
	name     string
	needs    []string
	v4, v6   bool // families of the underlay
	backends []cluster.Backend
	mtu      int
	direct   bool // between a and b only
	only4    bool // containers have IPv4 only
	by       string
}

func crossings() []crossing {
	type b = cluster.Backend
	list := []crossing{
		{name: "host-gw", v4: true, v6: true, backends: []b{{Type: cluster.HostGW}}, mtu: 1500, direct: true, by: "host-gw"},
		{name: "vxlan", needs: []string{"vxlan"}, v4: true, backends: []b{{Type: cluster.VXLAN}}, mtu: 1450, by: "vxlan"},
		{name: "vxlan-over-ipv6", needs: []string{"vxlan"}, v6: true, backends: []b{{Type: cluster.VXLAN, Port: 4789}}, mtu: 1430, by: "vxlan"},
		{name: "vxlan-direct", needs: []string{"vxlan"}, v4: true, v6: true, backends: []b{{Type: cluster.VXLAN, Direct: true}}, mtu: 1450, by: "vxlan"},
		{name: "wireguard", v4: true, backends: []b{{Type: cluster.WireGuard}}, mtu: 1440, by: "wireguard"},
		{name: "wireguard-over-ipv6", v6: true, backends: []b{{Type: cluster.WireGuard, Port: 51000, Keepalive: 25}}, mtu: 1420, by: "wireguard"},
		{name: "ipip", needs: []string{"ipip"}, v4: true, backends: []b{{Type: cluster.IPIP}}, mtu: 1480, only4: true, by: "ipip"},
		{name: "host-gw-ipv4", needs: []string{"vxlan"}, v4: true, backends: []b{{Type: cluster.HostGW}, {Type: cluster.VXLAN}}, mtu: 1450, by: "vxlan"},
		{name: "mix", v4: true, v6: true, backends: []b{{Type: cluster.HostGW, When: "direct"}, {Type: cluster.WireGuard}}, mtu: 1440, by: "wireguard"},
	}
	return list
}

// TestHosts checks that containers on three hosts reach each other through each backend that the kernel has. Packets of
// the full MTU must not be fragmented.
func TestHosts(t *testing.T) {
	t.Parallel()
	for _, c := range crossings() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Needs(t, c.needs...)
			testCrossing(t, c, lan(t, c.v4, c.v6))
		})
	}
}

func testCrossing(t *testing.T, c crossing, hosts []*host) {
	n := network(c.backends...)
	for _, h := range hosts {
		h.contain(t, c.mtu)
		r := h.join(t, n, hosts)
		if r.MTU != c.mtu {
			t.Errorf("MTU %d, want %d", r.MTU, c.mtu)
		}
		if (c.direct || c.only4) != (len(r.Problems) > 0) {
			t.Errorf("%s: problems %v", h.node.Name, r.Problems)
		}
		if far := hosts[2].node.Name; h.node.Name == "a" && !c.direct && r.By[far] != c.by {
			t.Errorf("%s is joined by %q, want %q", far, r.By[far], c.by)
		}
	}
	a := hosts[0]
	for _, to := range hosts[1:] {
		if c.direct && to == hosts[2] {
			continue
		}
		server(t, to.container)
		for _, ip := range []netip.Addr{to.four, to.six} {
			if ip.Is6() && c.only4 {
				continue
			}
			reaches(t, a, ip, c.mtu)
		}
	}
	for _, h := range append(hosts, &host{node: &cluster.Node{Name: "the router"}}) {
		if cut := fragments(t, h.netns); cut > 0 {
			t.Errorf("%s cut %d packets", h.node.Name, cut)
		}
	}
}

// reaches pings an address from the host and the container with packets of the full MTU, and sends some megabytes over
// TCP.
func reaches(t *testing.T, from *host, ip netip.Addr, mtu int) {
	t.Helper()
	headers := map[bool]int{true: 28, false: 48}[ip.Is4()]
	// WireGuard retries a handshake after five seconds. Two user-space devices that start at once may end with keys of
	// different handshakes. They start a new handshake after fifteen seconds without an answer.
	wait := strconv.Itoa(int(kerneltest.Slow(30 * time.Second).Seconds()))
	largest := []string{"ping", "-c1", "-w" + wait, "-Mdo", "-s" + strconv.Itoa(mtu-headers), ip.String()}
	kerneltest.In(t, from.container, largest...)
	kerneltest.In(t, from.netns, "ping", "-c1", "-w"+wait, ip.String())
	larger := append([]string{"nsenter", "--net=" + from.container}, largest...)
	larger[len(larger)-2], larger[4] = "-s"+strconv.Itoa(mtu-headers+1), "-W1"
	if out, err := exec.Command(larger[0], larger[1:]...).CombinedOutput(); err == nil {
		t.Errorf("one byte more passes uncut: %s", out)
	}
	kerneltest.In(t, from.container, "iperf3", "-c", ip.String(), "-n", "4M")
}

// server runs iperf3 in a namespace until the test ends.
func server(t *testing.T, netns string) {
	t.Helper()
	s := exec.Command("nsenter", "--net="+netns, "iperf3", "-s", "-p", "5201")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Process.Kill(); _ = s.Wait() })
	kerneltest.Until(t, func() bool { return strings.Contains(kerneltest.In(t, netns, "ss", "-ltn"), ":5201") })
}

// fragments returns how many packets a namespace has fragmented.
func fragments(t *testing.T, netns string) (n int) {
	t.Helper()
	file := "/proc/thread-self/net/"
	var text string
	if netns == "" {
		four, err1 := os.ReadFile(file + "snmp")
		six, err2 := os.ReadFile(file + "snmp6")
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		text = string(four) + string(six)
	} else {
		text = kerneltest.In(t, netns, "cat", file+"snmp", file+"snmp6")
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == "Ip6FragCreates":
			more, _ := strconv.Atoi(f[1])
			n += more
		case f[0] == "Ip:" && f[1] != "Forwarding": // the last fields but some: FragOKs, FragFails, FragCreates
			more, _ := strconv.Atoi(f[19])
			n += more
		}
	}
	return n
}
