package compat

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// host is a separate machine for one side of a case: a network namespace, a directory for all state, and containers.
type host struct {
	*kerneltest.Machine // its namespace "host" is the host's

	side    side
	plugins string   // CNI_PATH; "" means the side's
	more    []string // additional environment of its plugins

	requests func() string // a DHCP server's log of requests; nil without a server
}

func newSideHost(t testing.TB, s side) *host {
	t.Helper()
	h := &host{Machine: kerneltest.NewMachine(t), side: s}
	h.Netns["host"] = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	for _, d := range []string{"net.d", "lib", "run"} {
		if err := os.Mkdir(filepath.Join(h.Dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// container creates a container's namespace.
func (h *host) container(name string) {
	h.T.Helper()
	h.Netns[name] = kerneltest.Netns(h.T)
}

// ip runs lines of ip(8) in a namespace.
func (h *host) ip(name string, lines ...string) {
	h.T.Helper()
	err := kerneltest.Inside(h.Netns[name], func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	if err != nil {
		h.T.Fatalf("ip in %s: %v", name, err)
	}
}

// world creates a network beyond the host: 192.0.2.0/24 and 2001:db8::/64. The host has .1, the world .9.
func (h *host) world() {
	h.T.Helper()
	h.container("world")
	h.ip("host", "link add up0 type veth peer name eth0 netns "+h.Netns["world"],
		"addr add 192.0.2.1/24 dev up0", "addr add 2001:db8::1/64 dev up0 nodad", "link set up0 up")
	// The routes let the world answer packets that are not masqueraded.
	h.ip("world", "link set lo up", "addr add 192.0.2.9/24 dev eth0", "addr add 2001:db8::9/64 dev eth0 nodad", "link set eth0 up",
		"route add 10.1.0.0/24 via 192.0.2.1", "route add fd01::/64 via 2001:db8::1")
	h.serve("world", "tcp", ":7")
}

// serve answers every connection or datagram with the peer's address.
func (h *host) serve(name, network, addr string) {
	h.T.Helper()
	err := kerneltest.Inside(h.Netns[name], func() error {
		if network == "udp" {
			c, err := net.ListenPacket(network, addr)
			if err == nil {
				h.T.Cleanup(func() { c.Close() })
				go answer(c)
			}
			return err
		}
		l, err := net.Listen(network, addr)
		if err == nil {
			h.T.Cleanup(func() { l.Close() })
			go accept(l)
		}
		return err
	})
	if err != nil {
		h.T.Fatalf("serve %s %s in %s: %v", network, addr, name, err)
	}
}

func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		peer, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		_, _ = c.Write([]byte("hello " + peer))
		_ = c.Close()
	}
}

func answer(c net.PacketConn) {
	for b := make([]byte, 64); ; {
		_, peer, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		ip, _, _ := net.SplitHostPort(peer.String())
		_, _ = c.WriteTo([]byte("hello "+ip), peer)
	}
}

// answerTimeout returns how long an answer may take. The reference bridge plugin's IPv6 does not work until duplicate
// address detection is over, and a lost SYN is sent again after 1 and 3 seconds.
func answerTimeout() time.Duration { return kerneltest.Slow(5 * time.Second) }

const noAnswer = "no answer"

// dial sends hello and returns the answer: the peer that the server saw, or noAnswer.
func (h *host) dial(from, network, addr string) string {
	answer := noAnswer
	err := kerneltest.Inside(h.Netns[from], func() error {
		c, err := net.DialTimeout(network, addr, answerTimeout())
		if err != nil {
			return nil
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(answerTimeout()))
		_, _ = c.Write([]byte("hello"))
		b := make([]byte, 64)
		if n, _ := c.Read(b); n > 0 {
			answer = string(b[:n])
		}
		return nil
	})
	if err != nil {
		h.T.Errorf("dial %s %s in %s: %v", network, addr, from, err)
	}
	return answer
}

// command runs a program in a mount namespace with the host's own /var/lib and /sys, so that it does not change the
// machine's state.
func (h *host) command(env []string, stdin string, argv ...string) (stdout string, err error) {
	wrap := []string{"-m", "sh", "-c", `mount --bind "$0" /var/lib && mount -t sysfs sysfs /sys && exec "$@"`, filepath.Join(h.Dir, "lib")}
	cmd := exec.Command("unshare", append(wrap, argv...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()+errOut.String()))
	}
	return out.String(), nil
}

// file writes a file below the host's directory.
func (h *host) file(name, text string) {
	h.T.Helper()
	if err := os.WriteFile(filepath.Join(h.Dir, name), []byte(text), 0o644); err != nil {
		h.T.Fatal(err)
	}
}
