package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/examples"
	"github.com/fairlead/fairlead/kernel/netns"
)

// stateDir holds the demo's files, in the demo's own /run.
const stateDir = "/run/fairlead-demo"

// cast is a container of the demo with its network.
type cast struct {
	name, network string
	port          bool // host port 8080 leads to its port 80
	address       string
}

// stage is the demo inside its namespaces.
type stage struct {
	*printer
	options Options
	cast    []*cast
	netns   map[string]*netns.Handle
	servers []net.Listener
	clean   snapshot // state before the first add
	forward string   // value of net.ipv4.ip_forward before the demo
}

func containers() []*cast {
	return []*cast{
		{name: "web", network: "my-network", port: true}, {name: "client", network: "my-network"},
		{name: "db1", network: "dbnet"}, {name: "db2", network: "dbnet"},
		{name: "old1", network: "dbnet-single"}, {name: "old2", network: "dbnet-single"},
	}
}

// pluginTypes returns the plugins of the demo's networks.
func pluginTypes() []string {
	return []string{"bridge", "host-local", "portmap", "bandwidth", "tuning", "flannel", "minicni", "macvlan", "dhcp"}
}

const (
	worldAddress = "192.0.2.9" // RFC 5737
	hostAddress  = "192.0.2.1"
	world        = "world"
	bridges      = "cni0 cni1 cni2 minicni0" // the bridges of the example lists
)

// Inside runs the demo of one host in the current network and mount namespace, which Host created.
func Inside(ctx context.Context, o Options) error {
	s := &stage{printer: newPrinter(o), options: o, cast: containers(), netns: map[string]*netns.Handle{}}
	if err := s.privateState(); err != nil {
		return err
	}
	if o.Here {
		if err := s.free(ctx); err != nil {
			return err
		}
	}
	defer s.close()
	err := s.play(ctx)
	if err != nil {
		s.failure(err)
		s.strike(context.WithoutCancel(ctx))
	}
	if o.JSON {
		err = errors.Join(err, json.NewEncoder(o.Stdout).Encode(s.steps))
	}
	if err != nil {
		return &ReportedError{Err: err}
	}
	return nil
}

// privateState mounts directories for state that end with this process.
func (s *stage) privateState() error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := syscall.Mount("fairlead-demo", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount a directory of its own on %s: %w", dir, err)
		}
	}
	conf := filepath.Join(stateDir, "net.d")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return err
	}
	return fs.WalkDir(examples.Networks, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := examples.Networks.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(conf, path), raw, 0o644)
	})
}

// free fails if the host has networks that conflict with the demo's.
func (s *stage) free(ctx context.Context) error {
	now, err := ask(ctx, nil, "", hostQuestions())
	if err != nil {
		return err
	}
	for _, l := range now {
		for _, mine := range append(strings.Fields(bridges), "up0", "table inet fairlead", "10.244.", "10.1.", "10.2.", "192.0.2.") {
			if strings.Contains(l, " "+mine) {
				return fmt.Errorf("this host uses what the demo would (%s)\n%s\nType: fairlead demo, without --here", mine, l)
			}
		}
	}
	return nil
}

// env returns the environment of the demo's commands.
func (s *stage) env(more ...string) []string {
	return append([]string{"PATH=" + s.options.Getenv("PATH"), "CNI_PATH=" + s.options.Getenv("CNI_PATH"), "NETCONFPATH=" + stateDir + "/net.d"}, more...)
}

// fairlead runs this program with a command line.
func (s *stage) fairlead(ctx context.Context, env []string, args ...string) (out string, took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = "fairlead"
	cmd.Env = s.env(env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = cleanupTimeout / 2
	var stderr strings.Builder
	cmd.Stderr = &stderr
	began := time.Now()
	raw, err := cmd.Output()
	took = time.Since(began)
	if err != nil {
		err = fmt.Errorf("fairlead %s: %s (%w)", strings.Join(args, " "), strings.TrimSpace(strings.TrimPrefix(stderr.String(), "fairlead:")), err)
	}
	return string(raw), took, err
}

// tool runs a command of the machine.
func (s *stage) tool(ctx context.Context, command string) error {
	argv := strings.Fields(command)
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (s *stage) tools(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		if err := s.tool(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// serve answers every connection to a port in a namespace with the client's address.
func (s *stage) serve(name string, port int) error {
	l, err := inNetns(s.netns[name], func() (net.Listener, error) { return net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port)) })
	if err != nil {
		return fmt.Errorf("serve in %s: %w", name, err)
	}
	s.servers = append(s.servers, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			peer, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			fmt.Fprintf(c, "%s: hello %s", name, peer)
			_ = c.Close()
		}
	}()
	return nil
}

// dial connects from a namespace to a server and returns its answer. "host" is the demo's host.
func (s *stage) dial(from, address string) (answer string, took time.Duration, err error) {
	began := time.Now()
	answer, err = inNetns(s.netns[from], func() (string, error) {
		c, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err != nil {
			return "", err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		b := make([]byte, 100)
		n, err := c.Read(b)
		return string(b[:n]), err
	})
	if err != nil {
		err = fmt.Errorf("from %s to %s: %w", from, address, err)
	}
	return answer, time.Since(began), err
}

func (s *stage) close() {
	for _, l := range s.servers {
		_ = l.Close()
	}
	s.servers = nil
	for _, n := range s.netns {
		n.Close()
	}
	s.netns = map[string]*netns.Handle{}
}

// strike removes everything after a failure. A host in a namespace ends with this process.
func (s *stage) strike(ctx context.Context) {
	s.close()
	if !s.options.Here {
		return
	}
	for _, c := range s.cast {
		_, _, _ = s.fairlead(ctx, nil, "del", c.network, c.name)
	}
	_ = s.tidy(ctx)
	_ = s.tool(ctx, "ip link del up0")
}

// tidy removes the shared objects, which del leaves in place.
func (s *stage) tidy(ctx context.Context) error {
	var errs []error
	for b := range strings.FieldsSeq(bridges) {
		errs = append(errs, s.tool(ctx, "ip link del "+b))
	}
	errs = append(errs, s.tool(ctx, "nft delete table inet fairlead"))
	if s.forward != "" {
		errs = append(errs, os.WriteFile(forwardFile, []byte(s.forward), 0o644))
	}
	return errors.Join(append(errs, os.RemoveAll("/var/lib/cni"), os.RemoveAll("/run/fairlead"))...)
}

const forwardFile = "/proc/sys/net/ipv4/ip_forward"
