package compat

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// host is a separate machine for one side of a case: a network namespace, a directory for all state, and containers.
type host struct {
	t     testing.TB
	side  side
	dir   string
	netns map[string]string // path by name; "host" is the host's namespace

	plugins string   // CNI_PATH; "" means the side's
	more    []string // additional environment of its plugins

	requests func() string // a DHCP server's log of requests; nil without a server
}

func newHost(t testing.TB, s side) *host {
	t.Helper()
	kerneltest.Host(t)
	h := &host{t: t, side: s, dir: t.TempDir(), netns: map[string]string{}}
	h.netns["host"] = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	for _, d := range []string{"net.d", "lib", "run"} {
		if err := os.Mkdir(filepath.Join(h.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// container creates a container's namespace.
func (h *host) container(name string) {
	h.t.Helper()
	h.netns[name] = kerneltest.Netns(h.t)
}

// ip runs lines of ip(8) in a namespace.
func (h *host) ip(name string, lines ...string) {
	h.t.Helper()
	err := h.inside(name, func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	if err != nil {
		h.t.Fatalf("ip in %s: %v", name, err)
	}
}

// world creates a network beyond the host: 192.0.2.0/24 and 2001:db8::/64. The host has .1, the world .9.
func (h *host) world() {
	h.t.Helper()
	h.container("world")
	h.ip("host", "link add up0 type veth peer name eth0 netns "+h.netns["world"],
		"addr add 192.0.2.1/24 dev up0", "addr add 2001:db8::1/64 dev up0 nodad", "link set up0 up")
	// The routes let the world answer packets that are not masqueraded.
	h.ip("world", "link set lo up", "addr add 192.0.2.9/24 dev eth0", "addr add 2001:db8::9/64 dev eth0 nodad", "link set eth0 up",
		"route add 10.1.0.0/24 via 192.0.2.1", "route add fd01::/64 via 2001:db8::1")
	h.serve("world", "tcp", ":7")
}

// inside runs f on a thread in a namespace: sockets that it opens stay there.
func (h *host) inside(name string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		fd, err := unix.Open(h.netns[name], unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			unix.Close(fd)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// serve answers every connection or datagram with the peer's address.
func (h *host) serve(name, network, addr string) {
	h.t.Helper()
	err := h.inside(name, func() error {
		if network == "udp" {
			c, err := net.ListenPacket(network, addr)
			if err == nil {
				h.t.Cleanup(func() { c.Close() })
				go answer(c)
			}
			return err
		}
		l, err := net.Listen(network, addr)
		if err == nil {
			h.t.Cleanup(func() { l.Close() })
			go accept(l)
		}
		return err
	})
	if err != nil {
		h.t.Fatalf("serve %s %s in %s: %v", network, addr, name, err)
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

// dial sends hello and returns the answer: the peer that the server saw, or "no answer".
func (h *host) dial(from, network, addr string) string {
	answer := "no answer"
	err := h.inside(from, func() error {
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
		h.t.Errorf("dial %s %s in %s: %v", network, addr, from, err)
	}
	return answer
}

// command runs a program in a mount namespace with the host's own /var/lib and /sys, so that it does not change the
// machine's state.
func (h *host) command(env []string, stdin string, argv ...string) (stdout string, err error) {
	wrap := []string{"-m", "sh", "-c", `mount --bind "$0" /var/lib && mount -t sysfs sysfs /sys && exec "$@"`, filepath.Join(h.dir, "lib")}
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
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}
