package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel"
)

// fleet is the demo's cluster.
type fleet struct {
	*printer
	c          *lab.Cluster
	containers []resident
}

// resident is a container with its address.
type resident struct {
	node *lab.Node
	name string
	ip   netip.Addr
}

// Cluster runs the demo of several hosts.
func Cluster(ctx context.Context, o Options) error {
	if err := o.clusterPossible(); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fairlead-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f := &fleet{printer: newPrinter(o)}
	began := time.Now()
	err = f.play(ctx, lab.Options{Nodes: []string{"north", "east", "south"}, Members: 1, Bin: filepath.Dir(exe), Dir: dir,
		Network: `{"subnets": [{"cidr": "10.244.0.0/16"}], "backends": [{"type": "host-gw"}], "nat": true}`})
	if f.c != nil {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, f.logs())
		}
		f.c.Close()
	}
	if o.JSON {
		err = errors.Join(err, o.print(map[string]any{"ok": err == nil, "steps": f.steps}))
	}
	if err != nil {
		f.failure(err)
		return &ReportedError{Err: err}
	}
	f.success("Three hosts, every backend that this kernel has, nothing lost, in %.1f s.", time.Since(began).Seconds())
	return nil
}

// logs returns the last lines of each agent's log.
func (f *fleet) logs() (all string) {
	for _, n := range f.c.Nodes {
		lines := strings.Split(strings.TrimSpace(n.Agent.Log()), "\n")
		all += n.Name + ":\n  " + strings.Join(lines[max(0, len(lines)-8):], "\n  ") + "\n"
	}
	return all
}

func (o Options) clusterPossible() error {
	if os.Geteuid() != 0 {
		return errors.New("the demo creates network namespaces, which needs root\nType: sudo " + strings.Join(o.Program, " "))
	}
	var packages []string
	for _, need := range [][2]string{{"ip", "iproute2"}, {"nft", "nftables"}, {"ping", "iputils-ping"}, {"etcd", "etcd-server"}, {"curl", "curl"}, {"nsenter", "util-linux"}} {
		if _, err := exec.LookPath(need[0]); err != nil {
			packages = append(packages, need[1])
		}
	}
	if len(packages) > 0 {
		return fmt.Errorf("the demo needs programs that are not installed\nType: apt-get install %s", strings.Join(packages, " "))
	}
	return nil
}

func (f *fleet) play(ctx context.Context, o lab.Options) (err error) {
	f.heading(f.paint(bold, "Fairlead: several hosts"))
	f.title("Three hosts, an etcd, and an agent on each")
	began := time.Now()
	if f.c, err = lab.NewCluster(ctx, o); err != nil {
		return err
	}
	for _, n := range f.c.Nodes {
		f.row(n.Name, n.V4.String(), 0)
	}
	f.row("the agents know each other", "", time.Since(began))
	f.end()
	steps := []func(context.Context) error{f.populate}
	for _, b := range backends() {
		steps = append(steps, func(ctx context.Context) error { return f.connect(ctx, b) })
	}
	for _, step := range append(steps, f.isolate, f.show) {
		if err := step(ctx); err != nil {
			return err
		}
		f.end()
	}
	return ctx.Err()
}

// populate attaches two containers on each host.
func (f *fleet) populate(ctx context.Context) error {
	f.title("Two containers on each host")
	for _, n := range f.c.Nodes {
		for i := range 2 {
			name := fmt.Sprintf("%s%d", n.Name, i+1)
			began := time.Now()
			ip, err := n.Attach(ctx, name, "pods")
			if err != nil {
				return err
			}
			f.containers = append(f.containers, resident{n, name, ip})
			f.row("fairlead add pods "+name, ip.String(), time.Since(began))
		}
	}
	return nil
}

// backend is a backend and its title in the demo.
type backend struct{ name, conf string }

func backends() []backend {
	out := []backend{
		{"host-gw: plain routes", `{"type": "host-gw"}`},
		{"vxlan: a tunnel", `{"type": "vxlan"}`},
		{"wireguard: an encrypted tunnel", `{"type": "wireguard"}`},
		{"bgp: routes that the hosts tell each other", `{"type": "bgp"}`},
	}
	if kernel.HasLinkType(cluster.IPIP) {
		out = append(out, backend{"ipip: a tunnel of IP in IP", `{"type": "ipip"}`})
	}
	return out
}

// connect changes the backend of the running cluster, and kills an agent and the store.
func (f *fleet) connect(ctx context.Context, b backend) error {
	f.title("Joined by " + b.name)
	first := f.c.Nodes[0]
	began := time.Now()
	conf := fmt.Sprintf(`{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true, "backends": [%s]}`, b.conf)
	if err := os.WriteFile(first.Path("/run/network.json"), []byte(conf), 0o600); err != nil {
		return err
	}
	if _, err := first.Cluster(ctx, "network", "apply", "-f", "/run/network.json", "default"); err != nil {
		return err
	}
	pairs, err := f.meet(ctx)
	if err != nil {
		return err
	}
	f.row("fairlead network apply -f ...", fmt.Sprintf("all %d pairs reach each other", pairs), time.Since(began))
	return f.lose(ctx)
}

// meet verifies that each container reaches each other one.
func (f *fleet) meet(ctx context.Context) (pairs int, _ error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, from := range f.containers {
		for _, to := range f.containers {
			if from != to {
				pairs++
				if err := lab.Until(ctx, func() error { return from.node.Ping(ctx, from.name, to.ip) }); err != nil {
					return pairs, err
				}
			}
		}
	}
	return pairs, nil
}

// lose kills an agent and stops the store while a packet passes each millisecond.
func (f *fleet) lose(ctx context.Context) error {
	from, to := f.containers[0], f.containers[3]
	began := time.Now()
	p, err := from.node.Probe(from.name, to.ip)
	if err != nil {
		return err
	}
	err = f.breakThings(ctx, to.node)
	l, err2 := p.Stop()
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	f.row("kill -9 an agent, stop the store, start both", l.String(), time.Since(began))
	if l.Lost > 0 {
		return fmt.Errorf("%s", l)
	}
	return nil
}

func (f *fleet) breakThings(ctx context.Context, n *lab.Node) error {
	store := f.c.Stores[0]
	n.Agent.Kill()
	store.Process.Kill()
	time.Sleep(300 * time.Millisecond)
	if err := n.Start(); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	if err := store.Start(); err != nil {
		return err
	}
	if err := store.Wait(ctx); err != nil {
		return err
	}
	return f.c.Ready(ctx)
}

// isolate creates two networks with the same addresses.
func (f *fleet) isolate(ctx context.Context) error {
	f.title("Two isolated networks with the same addresses")
	first, last := f.c.Nodes[0], f.c.Nodes[2]
	for _, network := range []string{"blue", "red"} {
		if _, err := first.Cluster(ctx, "network", "create", network, "--isolated", "--subnet", "192.168.0.0/25"); err != nil {
			return err
		}
		var made []resident
		for i, n := range []*lab.Node{first, last} {
			if err := n.Configure(network, fmt.Sprintf(`{"type": "fairlead-net", "network": %q}`, network)); err != nil {
				return err
			}
			name := fmt.Sprintf("%s%d", network, i+1)
			ip, err := n.Attach(ctx, name, network)
			if err != nil {
				return err
			}
			made = append(made, resident{n, name, ip})
			f.row(fmt.Sprintf("fairlead add %s %s", network, name), fmt.Sprintf("%s on %s", ip, n.Name), 0)
		}
		began := time.Now()
		if err := lab.Until(ctx, func() error { return first.Ping(ctx, made[0].name, made[1].ip) }); err != nil {
			return err
		}
		f.row(made[0].name+" to "+made[1].name, "reached", time.Since(began))
		if first.Ping(ctx, made[0].name, f.containers[0].ip) == nil {
			return fmt.Errorf("%s reaches a container of the default network", made[0].name)
		}
		f.row(made[0].name+" to "+f.containers[0].name, "not reached, as it should be", 0)
	}
	return nil
}

// show prints the cluster's nodes and networks.
func (f *fleet) show(ctx context.Context) error {
	f.title("What there is")
	for _, args := range [][]string{{"node", "list"}, {"network", "list"}} {
		out, err := f.c.Nodes[0].Cluster(ctx, args...)
		if err != nil {
			return err
		}
		f.text("$ fairlead " + strings.Join(args, " "))
		f.note("%s", strings.TrimRight(out, "\n"))
	}
	return nil
}
