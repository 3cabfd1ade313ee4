package demo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	lan       = "lan"      // namespace of the DHCP server
	lanServer = "10.0.0.1" // and its address
	lanLeases = "/run/demo-leases"
)

// wan plays the network of 30-wan.conf: a macvlan of the host's eth0 with addresses from a DHCP server.
func (s *stage) wan(ctx context.Context) (err error) {
	switch {
	case s.options.Here:
		s.note("It takes an eth0 with a DHCP server behind it, which only a host of the demo's own has:\nleft out with --here.")
		return nil
	case s.tool(ctx, "ip link add try0 type veth peer name try1") != nil || s.tool(ctx, "ip link add link try0 name try2 type macvlan") != nil:
		s.note("This kernel has no macvlan, so this step is skipped.")
		return s.tool(ctx, "ip link del try0")
	}
	err = s.tools(ctx, "ip link del try0", "ip netns add "+lan, "ip link add eth0 type veth peer name eth0 netns "+lan, "ip link set eth0 up",
		"ip -n lan addr add "+lanServer+"/24 dev eth0", "ip -n lan link set eth0 up")
	if err != nil {
		return err
	}
	server, err := s.begin("ip", "netns", "exec", lan, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--no-ping", "--user=root",
		"--pid-file=", "--bind-dynamic", "--interface=eth0", "--dhcp-authoritative", "--dhcp-leasefile="+lanLeases, "--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end(server)) }()
	daemon, err := s.begin("/proc/self/exe", "dhcp-daemon")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, end(daemon), os.RemoveAll("/run/cni"), os.RemoveAll("/run/fairlead/dhcp"))
	}()
	if err := waitFor(ctx, "/run/cni/dhcp.sock"); err != nil {
		return err
	}
	s.note("dnsmasq answers in the network beyond eth0; \"fairlead dhcp-daemon\" keeps the leases.")
	if err := s.playWAN(ctx); err != nil {
		return err
	}
	return s.tools(ctx, "ip link del eth0", "ip netns del "+lan)
}

// playWAN attaches two containers, verifies their traffic, and detaches them.
func (s *stage) playWAN(ctx context.Context) error {
	ip, err := s.attachAll(ctx, "wan", "old1", "old2")
	if err != nil {
		return err
	}
	for _, p := range [][3]string{{"old1", "old2", ip["old2"]}, {"old2", lan, lanServer}} {
		took, err := s.ping(ctx, p[0], p[2])
		if err != nil {
			return err
		}
		s.row(pad(p[0], 8)+"→ "+pad(p[1], 8)+"ping "+p[2], "answers", took)
	}
	for _, name := range []string{"old1", "old2"} {
		_, took, err := s.fairlead(ctx, nil, "del", "wan", name)
		if err != nil {
			return err
		}
		s.command("fairlead del wan "+name, "gone, its lease given back", took)
	}
	return errors.Join(released(ctx), os.Remove(lanLeases))
}

// released waits until the server has no lease. It does not answer the message that gives a lease back (RFC 2131, 4.4.6).
func released(ctx context.Context) error {
	left := ""
	err := wait(ctx, func() (bool, error) {
		raw, err := os.ReadFile(lanLeases)
		left = string(raw)
		return !strings.Contains(left, "10.0.0."), err
	})
	if err == errWaited {
		err = errors.New("the server still has a lease: " + left)
	}
	return err
}

// begin starts a program that runs until end is called.
func (s *stage) begin(argv ...string) (*exec.Cmd, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = s.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if strings.HasSuffix(argv[0], "/exe") {
		cmd.Args[0] = "fairlead"
	}
	return cmd, cmd.Start()
}

func end(cmd *exec.Cmd) error {
	err := cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	return err
}

func waitFor(ctx context.Context, path string) error {
	err := wait(ctx, func() (bool, error) {
		_, err := os.Stat(path)
		return err == nil, nil
	})
	if err == errWaited {
		err = errors.New(path + " does not appear")
	}
	return err
}

var errWaited = errors.New("waited too long")

// wait calls a function until it is done or fails, for at most five seconds. Then it returns errWaited.
func wait(ctx context.Context, try func() (done bool, err error)) error {
	for range 500 {
		if done, err := try(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errWaited
}
