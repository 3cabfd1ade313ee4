package cyclonus

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/policytest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
)

// pods are containers in network namespaces, attached to a host by ptp, with servers on each port.
type pods struct {
	t     *testing.T
	sctp  bool // its servers are for SCTP, instead of TCP and UDP
	lib   *libcni.CNIConfig
	table *nftable.Programmer
	netns map[netip.Addr]string

	mu      sync.Mutex
	arrived map[policy.Packet]bool
}

// ports are all that Cyclonus' cases use.
var ports = []uint16{80, 81}

func newPods(t *testing.T, sctp bool) *pods {
	kerneltest.Host(t)
	kerneltest.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	table, err := nftable.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	dir := t.TempDir()
	self, err := os.Executable()
	for _, name := range []string{"ptp", "static"} { // the plugins run in this process, which their files must be
		if err = errors.Join(err, os.Symlink(self, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	return &pods{
		t: t, sctp: sctp, table: table, netns: map[netip.Addr]string{}, arrived: map[policy.Packet]bool{},
		lib: libcni.NewCNIConfigWithCacheDir([]string{dir}, dir, plugins.In(plugin.Env{Root: dir})),
	}
}

// attach attaches a container with an address, unless there is one, and starts its servers.
func (p *pods) attach(addr netip.Addr) {
	p.t.Helper()
	if p.netns[addr] != "" {
		return
	}
	gateway, all := "169.254.1.1", "0.0.0.0/0"
	if addr.Is6() {
		gateway, all = "fd00:ffff::1", "::/0"
	}
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "ptp", "antiSpoof": true, "ipam": {"type": "static",
		"addresses": [{"address": "%s/%d", "gateway": %q}], "routes": [{"dst": %q}]}}]}`, addr, addr.BitLen(), gateway, all))
	if err != nil {
		p.t.Fatal(err)
	}
	netns := kerneltest.Netns(p.t)
	kerneltest.In(p.t, netns, "ip", "link", "set", "lo", "up")
	rt := &libcni.RuntimeConf{ContainerID: "pod" + strconv.Itoa(len(p.netns)), NetNS: netns, IfName: "eth0"}
	if _, err := p.lib.AddNetworkList(p.t.Context(), list, rt); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.lib.DelNetworkList(p.t.Context(), list, rt) })
	p.netns[addr] = netns
	err = kerneltest.Inside(netns, func() (err error) {
		for _, port := range ports {
			err = errors.Join(err, p.serve(netip.AddrPortFrom(addr, port)))
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// serve notes what arrives at an address.
func (p *pods) serve(at netip.AddrPort) error {
	if p.sctp {
		l, err := kerneltest.ListenSCTP(at)
		if err == nil {
			p.t.Cleanup(func() { _ = l.Close() })
			go p.accept(l, at, "SCTP")
		}
		return err
	}
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	p.t.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
	go p.accept(tcp, at, "TCP")
	go func() {
		for _, from, err := udp.ReadFromUDPAddrPort(make([]byte, 1)); err == nil; _, from, err = udp.ReadFromUDPAddrPort(make([]byte, 1)) {
			p.note(from, at, "UDP")
		}
	}()
	return nil
}

// accept notes the connections that arrive until the listener ends.
func (p *pods) accept(l net.Listener, at netip.AddrPort, protocol string) {
	for c, err := l.Accept(); err == nil; c, err = l.Accept() {
		p.note(c.RemoteAddr().(*net.TCPAddr).AddrPort(), at, protocol) // also of SCTP
		_ = c.Close()
	}
}

func (p *pods) note(from, at netip.AddrPort, protocol string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived[policy.Packet{Src: from.Addr().Unmap(), Dst: at.Addr(), Protocol: protocol, Port: at.Port()}] = true
}

// send opens the connections of cells at once, and returns those that arrive. It waits for a number of them.
func (p *pods) send(cells []Cell, expected int) map[policy.Packet]bool {
	p.t.Helper()
	from := map[netip.Addr][]policy.Packet{}
	for _, c := range cells {
		from[c.Packet.Src] = append(from[c.Packet.Src], c.Packet)
	}
	var open []int
	for src, list := range from {
		err := kerneltest.Inside(p.netns[src], func() error {
			for _, x := range list {
				fd, err := connect(x)
				if err != nil {
					return fmt.Errorf("%+v: %w", x, err)
				}
				open = append(open, fd)
			}
			return nil
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
	for end := time.Now().Add(kerneltest.Slow(2 * time.Second)); p.count() < expected && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	time.Sleep(20 * time.Millisecond) // a connection that is not expected would arrive, too
	for _, fd := range open {
		_ = unix.Close(fd)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.arrived
	p.arrived = map[policy.Packet]bool{}
	return out
}

// connect sends the first packet of a connection from a new port.
func connect(x policy.Packet) (fd int, err error) {
	family, kind, protocol := unix.AF_INET, unix.SOCK_STREAM, 0
	var to unix.Sockaddr
	if x.Dst.Is4() {
		to = &unix.SockaddrInet4{Port: int(x.Port), Addr: x.Dst.As4()}
	} else {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(x.Port), Addr: x.Dst.As16()}
	}
	switch x.Protocol {
	case "UDP":
		kind = unix.SOCK_DGRAM
	case "SCTP":
		protocol = unix.IPPROTO_SCTP
	}
	if fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol); err != nil {
		return 0, err
	}
	if err = unix.Connect(fd, to); errors.Is(err, unix.EINPROGRESS) {
		err = nil
	}
	if err == nil && x.Protocol == "UDP" {
		_, err = unix.Write(fd, []byte{1})
	}
	return fd, err
}

func (p *pods) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.arrived)
}

// TestCyclonusContainers opens each connection of TCP and UDP of Cyclonus' cases between containers in network
// namespaces. All are on one host.
func TestCyclonusContainers(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, cases []Case) { newPods(t, false).open(cases) })
}

// TestCyclonusSCTP is TestCyclonusContainers for SCTP.
func TestCyclonusSCTP(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "SCTP")
	eachFamily(t, func(t *testing.T, cases []Case) { newPods(t, true).open(cases) })
}

// open opens the connections of cases, and compares which arrive.
func (p *pods) open(cases []Case) {
	t := p.t
	opened, arrived := 0, 0
	for i, c := range cases {
		for j, s := range c.Steps {
			for _, e := range s.World.Endpoints {
				p.attach(e.Addresses[0])
			}
			if _, err := p.table.Sync(t.Context(), policy.Compile(policytest.OneNode(s.World, "here"), "here")); err != nil {
				t.Fatal(err)
			}
			want := map[policy.Packet]bool{}
			var cells []Cell
			for _, c := range s.Cells {
				if (c.Packet.Protocol == "SCTP") != p.sctp {
					continue
				}
				if cells = append(cells, c); c.Allowed() {
					want[c.Packet] = true
				}
			}
			got := p.send(cells, len(want))
			opened, arrived = opened+len(cells), arrived+len(got)
			for _, c := range cells {
				if got[c.Packet] != want[c.Packet] {
					t.Errorf("case %d, step %d, %s to %s %s %d: arrived %v, want %v", i+1, j+1, c.From, c.To, c.Packet.Protocol, c.Packet.Port, got[c.Packet], want[c.Packet])
				}
			}
		}
	}
	t.Logf("%d cases, %d containers, %d connections, %d arrived", len(cases), len(p.netns), opened, arrived)
}
