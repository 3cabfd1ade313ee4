package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/agent/backend"
)

// Host is one host of a lab.
type Host struct {
	Name   string
	V4, V6 netip.Addr // of eth0, /24 and /64

	lab  *Lab
	room *room

	mu        sync.Mutex
	processes []*Process
	ends      []func() // called at the host's end
}

func (h *Host) atEnd(f func()) {
	h.mu.Lock()
	h.ends = append(h.ends, f)
	h.mu.Unlock()
}

// Host adds a host to the lab and connects its eth0 to the switch.
func (l *Lab) Host(ctx context.Context, name string) (*Host, error) {
	r, err := newRoom(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.hosts) + 1
	h := &Host{Name: name, lab: l, room: r}
	h.V4 = netip.MustParseAddr(fmt.Sprint(net4, n))
	h.V6 = netip.MustParseAddr(fmt.Sprintf("%s%x", net6, n))
	l.hosts = append(l.hosts, h)
	err = l.ip(ctx, l.sw,
		fmt.Sprintf("link add name %s type veth peer name eth0 netns %d", name, r.pid),
		fmt.Sprintf("link set dev %s master br0 up", name))
	if err == nil {
		err = l.ip(ctx, r, "link set eth0 up", fmt.Sprintf("addr add %s/24 dev eth0", h.V4), fmt.Sprintf("addr add %s/64 dev eth0 nodad", h.V6),
			"route add default dev eth0")
	}
	return h, err
}

func (h *Host) close() {
	h.mu.Lock()
	list, ends := h.processes, h.ends
	h.mu.Unlock()
	for _, end := range ends {
		end()
	}
	for _, p := range list {
		p.Kill()
	}
	// A user-space WireGuard device survives its agent and ends with its link.
	_, _ = h.room.run(context.Background(), nil, "ip", "link", "del", backend.WireGuardName)
	h.room.close()
}

// Netns returns the path of the host's network namespace.
func (h *Host) Netns() string { return fmt.Sprintf("/proc/%d/ns/net", h.room.pid) }

// MountNS returns the path of the host's mount namespace.
func (h *Host) MountNS() string { return fmt.Sprintf("/proc/%d/ns/mnt", h.room.pid) }

// Path returns the path on the machine of a file in the host.
func (h *Host) Path(file string) string { return fmt.Sprintf("/proc/%d/root%s", h.room.pid, file) }

// Run runs a command in the host and returns its standard output.
func (h *Host) Run(ctx context.Context, argv ...string) (string, error) {
	return h.run(ctx, nil, argv...)
}

func (h *Host) run(ctx context.Context, env []string, argv ...string) (string, error) {
	out, err := h.room.run(ctx, env, argv...)
	if err != nil {
		return out, fmt.Errorf("host %s: %w", h.Name, err)
	}
	return out, nil
}

// IP runs ip(8) with the arguments in one string.
func (h *Host) IP(ctx context.Context, line string) (string, error) {
	return h.Run(ctx, append([]string{"ip"}, strings.Fields(line)...)...)
}

// Command returns a command in the host, which the caller starts.
func (h *Host) Command(ctx context.Context, argv ...string) *exec.Cmd {
	argv = h.room.within(argv...)
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}

// Process is a long-running program.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

// Start starts a program in the host. It runs until Kill, Stop or the lab's end. Its output is appended to a file on
// the machine.
func (h *Host) Start(log string, env []string, argv ...string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	argv = h.room.within(argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("host %s: start %s: %w", h.Name, argv[0], err)
	}
	p := &Process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() { p.err = cmd.Wait(); close(p.done) }()
	h.mu.Lock()
	h.processes = append(h.processes, p)
	h.mu.Unlock()
	return p, nil
}

// Pid returns the PID on the machine, because nsenter executes the program.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log returns the program's output so far, including earlier runs.
func (p *Process) Log() string {
	raw, _ := os.ReadFile(p.log)
	return string(raw)
}

// Signal sends a signal to the program.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill kills the program and waits for its end.
func (p *Process) Kill() {
	select {
	case <-p.done: // another process may have the PID now
	default:
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Stop asks the program to end, waits, and kills it if it does not.
func (p *Process) Stop(within time.Duration) error {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return p.err
	case <-time.After(within):
		p.Kill()
		return errors.New("it did not end when it was asked to")
	}
}

// Container creates a named network namespace in the host, as "ip netns" does.
func (h *Host) Container(ctx context.Context, name string) error {
	if _, err := h.IP(ctx, "netns add "+name); err != nil {
		return err
	}
	_, err := h.IP(ctx, "-n "+name+" link set lo up")
	return err
}
