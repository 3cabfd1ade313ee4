package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/kernel/netns"
)

// play runs the demo step by step, until a step fails.
func (s *stage) play(ctx context.Context) error {
	s.opening()
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"A host, a world beyond it, and six containers that have nothing but lo", s.build},
		{"Attach: each container to a network", s.attach},
		{"What there is now", s.picture},
		{"They reach each other, the host, and beyond", s.reach},
		{"The host port answers", s.hostPort},
		{"List, and check", s.inspect},
		{"Detach", s.detach},
		{"Two more: the subnet that flannel leased, and the smallest plugin", s.more},
		{"One of another kind: the host's own network, by macvlan and DHCP", s.wan},
		{"A clean end", s.compare},
	} {
		s.title(step.title)
		if err := step.do(ctx); err != nil {
			return err
		}
		s.end()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (s *stage) opening() {
	s.heading(s.paint(bold, "Fairlead: the main job, with the example networks"))
	if s.options.Here {
		s.note("The host is this machine's own network namespace; look on from another terminal.")
	} else {
		s.note("The host is a network namespace with its own /run and /var/lib: this\nmachine's network is not touched.")
	}
	var ours, reference []string
	for _, t := range pluginTypes() {
		path, err := invoke.FindInPath(t, strings.Split(s.options.Getenv("CNI_PATH"), ":"))
		if err == nil && builtin.IsOurs(path) {
			ours = append(ours, t)
		} else {
			reference = append(reference, t)
		}
	}
	s.text(pad("plugins of Fairlead", 24) + s.paint(green, commas(ours)))
	if len(reference) > 0 {
		s.text(pad("plugins of others", 24) + s.paint(cyan, commas(reference)) + s.paint(dim, "  by CNI_PATH"))
	}
}

// settled returns the state once the host's uplink has a carrier, which takes a while on a busy machine.
func (s *stage) settled(ctx context.Context) (all snapshot, err error) {
	const patience = 5 * time.Second
	for end := time.Now().Add(patience); ; time.Sleep(patience / 100) {
		all, err = s.everything(ctx)
		waits := slices.ContainsFunc(all, func(l string) bool { return strings.Contains(l, "up0") && strings.Contains(l, "NO-CARRIER") })
		if err != nil || !waits || time.Now().After(end) {
			return all, err
		}
	}
}

// build creates the host's uplink and the containers.
func (s *stage) build(ctx context.Context) error {
	err := s.tools(ctx, "ip link set lo up", "ip netns add "+world,
		"ip link add up0 type veth peer name eth0 netns "+world,
		"ip link set up0 addrgenmode none", "ip -n world link set eth0 addrgenmode none",
		"ip addr add "+hostAddress+"/24 dev up0", "ip link set up0 up",
		"ip -n world addr add "+worldAddress+"/24 dev eth0", "ip -n world link set eth0 up")
	if err != nil {
		return err
	}
	names := []string{world}
	for _, c := range s.cast {
		if err := s.tool(ctx, "ip netns add "+c.name); err != nil {
			return err
		}
		names = append(names, c.name)
	}
	for _, n := range names {
		if s.netns[n], err = netns.Open(netnspath.Dir + "/" + n); err != nil {
			return err
		}
	}
	s.command("ip netns add web; ...", strings.Join(names, " "), 0)
	if forward, err := os.ReadFile(forwardFile); err == nil {
		s.forward = strings.TrimSpace(string(forward))
	}
	s.clean, err = s.settled(ctx)
	s.note("Saved the state of everything (%d lines), to compare at the end.", len(s.clean))
	return err
}

const portCaps = `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`

func (s *stage) attach(ctx context.Context) error {
	for _, c := range s.cast {
		var env []string
		words := ""
		if c.port {
			env, words = []string{portCaps}, " :8080 → 80"
		}
		out, took, err := s.fairlead(ctx, env, "add", c.network, c.name)
		if err != nil {
			return err
		}
		if c.address, err = addressIn(out); err != nil {
			return err
		}
		s.command("fairlead add "+c.network+" "+c.name, "eth0 "+c.address+words, took)
	}
	s.note("Web asked for its host port by CAP_ARGS='{\"portMappings\": [...]}'.")
	return nil
}

// addressIn returns the first address of a result.
func addressIn(result string) (string, error) {
	var v struct{ CNIVersion string }
	if err := json.Unmarshal([]byte(result), &v); err != nil {
		return "", fmt.Errorf("read the result of add: %w", err)
	}
	r, err := wire.Decode(v.CNIVersion, []byte(result))
	if err != nil {
		return "", err
	}
	if len(r.IPs) == 0 {
		return "", errors.New("the result of add has no address")
	}
	return r.IPs[0].Address.String(), nil
}

func (c *cast) ip() string { return netip.MustParsePrefix(c.address).Addr().String() }

// picture draws the networks and containers.
func (s *stage) picture(ctx context.Context) error {
	gateway, err := exec.CommandContext(ctx, "ip", "-br", "-4", "addr", "show", "cni0").Output()
	if err != nil {
		return fmt.Errorf("look at cni0: %w", err)
	}
	f := strings.Fields(string(gateway))
	about := map[string]string{
		"my-network":   s.paint(cyan, f[len(f)-1]) + s.paint(dim, " gateway, masquerade, 1 Mbit/s"),
		"dbnet":        s.paint(dim, "no gateway: they see each other"),
		"dbnet-single": s.paint(dim, "the same, by one plugin, spec 0.3.1"),
	}
	s.text("   world   " + s.paint(cyan, worldAddress))
	s.text("     │")
	s.text("   host    " + s.paint(cyan, hostAddress) + "   :8080 leads to web:80")
	for n, network := range []string{"my-network", "dbnet", "dbnet-single"} {
		branch, trunk := "├", "│"
		if n == 2 {
			branch, trunk = "└", " "
		}
		s.text("     " + branch + "── " + s.paint(bold, fmt.Sprintf("cni%d", n)) + "  " + pad(network, 14) + about[network])
		for i, c := range s.cast[2*n : 2*n+2] {
			s.text("     " + trunk + "    " + []string{"├", "└"}[i] + "── " + pad(c.name, 9) + s.paint(cyan, c.address))
		}
	}
	return nil
}

func (s *stage) reach(ctx context.Context) error {
	by := map[string]*cast{}
	for _, c := range s.cast {
		by[c.name] = c
	}
	for _, p := range [][3]string{
		{"client", "web", by["web"].ip()}, {"web", "client", by["client"].ip()},
		{"db1", "db2", by["db2"].ip()}, {"old2", "old1", by["old1"].ip()},
		{"client", "host", "10.244.0.1"}, {"host", "web", by["web"].ip()}, {"client", "world", worldAddress},
	} {
		took, err := s.ping(ctx, p[0], p[2])
		if err != nil {
			return err
		}
		s.row(pad(p[0], 8)+"→ "+pad(p[1], 8)+"ping "+p[2], "answers", took)
	}
	if err := s.serve(world, 7); err != nil {
		return err
	}
	answer, took, err := s.dial("client", worldAddress+":7")
	if err == nil && !strings.HasSuffix(answer, "hello "+hostAddress) {
		err = fmt.Errorf("world saw client as %q, want the host's address %s (masquerade)", answer, hostAddress)
	}
	if err != nil {
		return err
	}
	s.row("client  → world   tcp "+worldAddress+":7", fmt.Sprintf("%q", answer), took)
	s.note("%s is the host: what leaves it is masqueraded.", hostAddress)
	return nil
}

// ping sends three packets and returns the average time of an answer.
func (s *stage) ping(ctx context.Context, from, to string) (time.Duration, error) {
	out, err := inNetns(s.netns[from], func() ([]byte, error) {
		return exec.CommandContext(ctx, "ping", "-n", "-c3", "-i0.01", "-W2", to).CombinedOutput()
	})
	if err != nil {
		return 0, fmt.Errorf("%s cannot reach %s: ping: %w\n%s", from, to, err, out)
	}
	m := regexp.MustCompile(`= [0-9.]+/([0-9.]+)/`).FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("ping says no time: %s", out)
	}
	return time.ParseDuration(string(m[1]) + "ms")
}

func (s *stage) hostPort(context.Context) error {
	if err := s.serve("web", 80); err != nil {
		return err
	}
	for _, d := range []struct{ from, to, sees string }{
		{world, hostAddress, worldAddress}, {"host", "127.0.0.1", ""}, {"client", "10.244.0.1", ""},
	} {
		answer, took, err := s.dial(d.from, d.to+":8080")
		if err == nil && !strings.HasPrefix(answer, "web: hello "+d.sees) {
			err = fmt.Errorf("%s asked %s:8080 and got %q", d.from, d.to, answer)
		}
		if err != nil {
			return err
		}
		s.row(pad(d.from, 8)+"→ "+d.to+":8080", fmt.Sprintf("%q", answer), took)
	}
	return nil
}
