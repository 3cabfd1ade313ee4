// Package dhcptest gives tests networks with real DHCP servers: a bridge in the test's host with a namespace, in which
// Debian's dnsmasq or Kea runs. Everything ends with the test.
package dhcptest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Network is a bridge in the test's host (see kerneltest.Host) and a namespace for its servers, whose interface is
// eth0.
type Network struct {
	t       testing.TB
	Bridge  string
	Servers string // path of the servers' namespace
	Dir     string // directory of the servers' files
	ports   int
}

// New creates a network whose servers have these addresses.
func New(t testing.TB, bridge string, addrs ...string) *Network {
	t.Helper()
	n := &Network{t: t, Bridge: bridge, Servers: kerneltest.Netns(t), Dir: kerneltest.MemoryDir(t)}
	kerneltest.Run(t, "ip", "link", "add", bridge, "type", "bridge")
	kerneltest.Run(t, "ip", "link", "set", bridge, "up")
	n.Join(n.Servers, "eth0")
	for _, a := range addrs {
		n.Addr("add", a)
	}
	kerneltest.In(t, n.Servers, "ip", "link", "set", "eth0", "up")
	// Kea requires a carrier, which a kernel worker detects up to a second later. The worker then enables the bridge's port.
	kerneltest.Until(t, func() bool {
		return strings.Contains(kerneltest.In(t, n.Servers, "ip", "link", "show", "eth0"), "state UP") &&
			strings.Contains(kerneltest.Run(t, "ip", "link", "show", bridge), "state UP") &&
			strings.Contains(kerneltest.Run(t, "ip", "-details", "link", "show", "master", bridge), "bridge_slave state forwarding")
	})
	return n
}

// Addr adds an address to the servers' interface, or removes one ("del").
func (n *Network) Addr(verb, a string) {
	n.t.Helper()
	argv := []string{"ip", "addr", verb, a, "dev", "eth0"}
	if strings.Contains(a, ":") {
		argv = append(argv, "nodad")
	}
	kerneltest.In(n.t, n.Servers, argv...)
}

// Join connects a container's interface to the bridge. The interface is down, as a link plugin leaves it.
func (n *Network) Join(netns, ifname string) {
	n.t.Helper()
	kerneltest.Run(n.t, "ip", "link", "add", n.port(), "master", n.Bridge, "up", "type", "veth", "peer", "name", ifname, "netns", netns)
}

// port returns the name of the bridge's next port.
func (n *Network) port() string {
	n.ports++
	return fmt.Sprintf("%s-%d", n.Bridge, n.ports)
}

// JoinAll is Join for many interfaces of one container. Names is their pattern.
func (n *Network) JoinAll(netns, names string, count int) {
	n.t.Helper()
	var lines strings.Builder
	for i := range count {
		fmt.Fprintf(&lines, "link add %s master %s up type veth peer name %s netns %s\n",
			n.port(), n.Bridge, fmt.Sprintf(names, i), netns)
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(lines.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("ip link add, %d times: %v\n%s", count, err, out)
	}
}

// Server is a running DHCP server.
type Server struct {
	t   testing.TB
	cmd *exec.Cmd
	out *os.File
	end chan struct{}
}

// start starts a server and waits until its log says that it is ready.
func (n *Network) start(ready string, env []string, argv ...string) *Server {
	n.t.Helper()
	out, err := os.CreateTemp(n.Dir, filepath.Base(argv[0])+"-*.log")
	if err != nil {
		n.t.Fatal(err)
	}
	inside := append([]string{"--net=" + n.Servers, "--"}, argv...)
	s := &Server{t: n.t, cmd: exec.Command("nsenter", inside...), out: out, end: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.Env = append(os.Environ(), env...)
	if err := s.cmd.Start(); err != nil {
		n.t.Fatalf("start %s: %v", argv[0], err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.end)
	}()
	n.t.Cleanup(func() {
		s.Stop()
		if n.t.Failed() {
			n.t.Logf("the log of %s:\n%s", argv[0], s.Log())
		}
	})
	kerneltest.Eventually(n.t, func() error {
		if strings.Contains(s.Log(), ready) {
			return nil
		}
		select {
		case <-s.end:
			n.t.Fatalf("%s ended: %s", argv[0], s.Log())
		default:
		}
		return fmt.Errorf("%s is not ready: %s", argv[0], s.Log())
	})
	return s
}

// Log returns the server's log so far.
func (s *Server) Log() string {
	raw, err := os.ReadFile(s.out.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(raw)
}

// Stop kills the server, as a crash would end it.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	<-s.end
	_ = s.out.Close()
}

// Freeze stops the server's answers until Thaw.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw resumes a frozen server.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Errorf("%v to the server: %v", sig, err)
	}
}

// Dnsmasq starts dnsmasq on the bridge with additional arguments.
func (n *Network) Dnsmasq(args ...string) *Server {
	n.t.Helper()
	return n.start("started", nil, append([]string{"dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--port=0", "--no-ping",
		"--user=root", "--pid-file=", "--bind-dynamic", "--interface=eth0", "--dhcp-leasefile=" + n.LeaseFile(),
		"--dhcp-lease-max=100000", "--dhcp-authoritative"}, args...)...)
}

// LeaseFile returns the path of dnsmasq's lease file.
func (n *Network) LeaseFile() string { return filepath.Join(n.Dir, "dnsmasq.leases") }

// Leases returns the content of dnsmasq's lease file.
func (n *Network) Leases() string {
	raw, err := os.ReadFile(n.LeaseFile())
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	return string(raw)
}

// Kea4 starts Kea's DHCPv4 server. Conf is the content of "Dhcp4".
func (n *Network) Kea4(conf string) *Server {
	n.t.Helper()
	return n.kea("kea-dhcp4", "Dhcp4", "DHCP4_STARTED", conf)
}

// Kea6 starts Kea's DHCPv6 server. Conf is the content of "Dhcp6".
func (n *Network) Kea6(conf string) *Server {
	n.t.Helper()
	return n.kea("kea-dhcp6", "Dhcp6", "DHCP6_STARTED", fmt.Sprintf(`"data-directory": %q, `, n.Dir)+conf)
}

// kea starts a copy of the program, because AppArmor may confine the packaged one to the system's files.
func (n *Network) kea(program, key, ready, conf string) *Server {
	n.t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path = "/usr/sbin/" + program
	}
	raw, err := os.ReadFile(path)
	copied, file := filepath.Join(n.Dir, program), filepath.Join(n.Dir, program+".conf")
	if _, e := os.Stat(copied); err == nil && e != nil {
		err = os.WriteFile(copied, raw, 0o700)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(fmt.Sprintf(`{%q: {
			"interfaces-config": {"interfaces": ["eth0"]},
			"lease-database": {"type": "memfile", "persist": true, "name": %q, "lfc-interval": 0},
			"loggers": [{"name": %q, "severity": "INFO", "output_options": [{"output": "stdout", "flush": true}]}],
			%s}}`, key, n.KeaLeases(program), program, conf)), 0o600)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.waitLinkLocal(program)
	s := n.start(ready, []string{"KEA_PIDFILE_DIR=" + n.Dir, "KEA_LOCKFILE_DIR=" + n.Dir}, copied, "-c", file)
	if log := s.Log(); strings.Contains(log, "_SOCKET_FAIL") {
		n.t.Fatalf("%s does not listen: %s", program, log)
	}
	return s
}

// waitLinkLocal waits until the servers' link-local address is usable.
func (n *Network) waitLinkLocal(program string) {
	kerneltest.Until(n.t, func() bool {
		out := kerneltest.In(n.t, n.Servers, "ip", "-6", "addr", "show", "dev", "eth0", "scope", "link")
		return program != "kea-dhcp6" || strings.Contains(out, "inet6") && !strings.Contains(out, "tentative")
	})
}

// KeaLeases returns the path of the lease file of a Kea server.
func (n *Network) KeaLeases(program string) string { return filepath.Join(n.Dir, program+".csv") }
