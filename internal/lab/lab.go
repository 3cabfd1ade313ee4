// Package lab creates several hosts on one machine for tests and the demo. The hosts are network and mount namespaces
// that a switch connects. The lab does not change the machine's own network or files, and it ends with the program.
package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Lab is a switch and its hosts.
type Lab struct {
	sw *room

	mu    sync.Mutex
	hosts []*Host
}

// These are the hosts' networks, RFC 2544 and RFC 3849. The first host has .1.
const (
	net4 = "198.18.0."
	net6 = "2001:db8:18::"
)

// room is a network and mount namespace. A waiting process keeps it alive.
type room struct {
	cmd   *exec.Cmd
	stdin io.Closer
	pid   int
}

func newRoom(ctx context.Context) (*room, error) {
	cmd := exec.Command("unshare", "--net", "--mount", "--propagation", "private", "cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe() // the room ends with this process
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("make a host: %w", err)
	}
	r := &room{cmd, stdin, cmd.Process.Pid}
	if err := r.prepare(ctx); err != nil {
		r.close()
		return nil, fmt.Errorf("make a host: %w", err)
	}
	return r, nil
}

// prepare waits until the process has its namespaces, and mounts separate state in the room.
func (r *room) prepare(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ours, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	err = Until(within, func() error { // unshare executes cat when the namespaces are ready
		mounts, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", r.pid))
		if err != nil || mounts == ours {
			return cmp.Or(err, errors.New("unshare has not begun"))
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", r.pid))
		if err == nil && strings.HasSuffix(exe, "/unshare") {
			err = errors.New("unshare is not ready")
		}
		return err
	})
	for _, line := range []string{
		"mount -t tmpfs -o mode=755 room /run", "mount -t tmpfs -o mode=755 room /var/lib", "mkdir /run/netns", "ip link set lo up",
	} {
		if err == nil {
			_, err = r.run(ctx, nil, strings.Fields(line)...)
		}
	}
	return err
}

func (r *room) close() {
	_ = r.stdin.Close()
	_ = r.cmd.Wait()
}

// within returns the command line that runs a command in the room.
func (r *room) within(argv ...string) []string {
	return append([]string{"nsenter", "--net", "--mount", "--target", fmt.Sprint(r.pid), "--"}, argv...)
}

// run runs a command with additional environment variables and returns its output.
func (r *room) run(ctx context.Context, env []string, argv ...string) (string, error) {
	argv = r.within(argv...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s%s", strings.Join(argv[len(r.within()):], " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// New creates a lab that contains only the switch.
func New(ctx context.Context) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("hosts of its own are namespaces, which needs root")
	}
	sw, err := newRoom(ctx)
	if err != nil {
		return nil, err
	}
	l := &Lab{sw: sw}
	if err := l.ip(ctx, sw, "link add br0 up type bridge forward_delay 0"); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Lab) ip(ctx context.Context, r *room, lines ...string) error {
	for _, line := range lines {
		if _, err := r.run(ctx, nil, append([]string{"ip"}, strings.Fields(line)...)...); err != nil {
			return err
		}
	}
	return nil
}

// Switch runs a command in the switch's namespace. The port for a host has the host's name.
func (l *Lab) Switch(ctx context.Context, argv ...string) (string, error) {
	return l.sw.run(ctx, nil, argv...)
}

// Close ends all hosts and their processes.
func (l *Lab) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hosts {
		h.close()
	}
	l.hosts = nil
	l.sw.close()
}
