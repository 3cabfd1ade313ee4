package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options configure a Cluster.
type Options struct {
	Nodes   []string // names of the hosts that run agents
	Members int      // number of etcd members, each on its own host; 0: no store, and each node is its own cluster
	Network string   // the default network, JSON
	Bin     string   // directory of the programs fairlead and fairlead-cni
	Dir     string   // directory for logs and etcd's data
	Agent   []string // additional flags of each agent
}

// Cluster is a set of hosts with agents, and a store.
type Cluster struct {
	*Lab
	Options
	Stores []*Member
	Nodes  []*Node
}

// Member is a host with an etcd member.
type Member struct {
	*Host
	c       *Cluster
	initial string
	Process *Process
}

// Node is a host with an agent.
type Node struct {
	*Host
	c     *Cluster
	Agent *Process
	Wrap  []string // a command that executes the agent, if any
	Flags []string // additional flags of this node's agent
	bin   string   // directory of its programs
}

// NewCluster creates the hosts and starts etcd and the agents. The caller calls Close, also after an error.
func NewCluster(ctx context.Context, o Options) (*Cluster, error) {
	l, err := New(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Lab: l, Options: o}
	if err := c.begin(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) begin(ctx context.Context) error {
	if err := c.startStores(ctx); err != nil {
		return err
	}
	for _, name := range c.Options.Nodes {
		n, err := c.Join(ctx, name)
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, n)
		if err := n.Start(); err != nil {
			return err
		}
	}
	return c.Ready(ctx)
}

// Join adds a host that is set up like a node, without starting its agent.
func (c *Cluster) Join(ctx context.Context, name string) (*Node, error) {
	h, err := c.Host(ctx, name)
	if err != nil {
		return nil, err
	}
	n := &Node{Host: h, c: c, bin: c.Bin}
	return n, n.configure(ctx)
}

func (c *Cluster) startStores(ctx context.Context) error {
	var initial []string
	for i := range c.Members {
		h, err := c.Host(ctx, fmt.Sprintf("etcd%d", i+1))
		if err != nil {
			return err
		}
		c.Stores = append(c.Stores, &Member{Host: h, c: c})
		initial = append(initial, fmt.Sprintf("%s=http://%s:2380", h.Name, h.V4))
	}
	for _, m := range c.Stores {
		m.initial = strings.Join(initial, ",")
		if err := m.Start(); err != nil {
			return err
		}
	}
	for _, m := range c.Stores {
		if err := m.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the member with its existing data.
func (m *Member) Start() (err error) {
	client, peer := fmt.Sprintf("http://%s:2379", m.V4), fmt.Sprintf("http://%s:2380", m.V4)
	m.Process, err = m.Host.Start(filepath.Join(m.c.Dir, m.Name+".log"), nil, "etcd", "--name", m.Name, "--data-dir", filepath.Join(m.c.Dir, m.Name),
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", m.initial, "--unsafe-no-fsync", "--heartbeat-interval", "50", "--election-timeout", "500")
	return err
}

// Wait waits until the member serves.
func (m *Member) Wait(ctx context.Context) error {
	return Until(ctx, func() error {
		select {
		case <-m.Process.Done():
			return fmt.Errorf("etcd ended: %s", tail(m.Process.Log()))
		default:
		}
		out, err := m.Run(ctx, "curl", "-s", "-m", "1", fmt.Sprintf("http://%s:2379/health", m.V4))
		if err == nil && !strings.Contains(out, `"true"`) {
			err = fmt.Errorf("etcd on %s says %s", m.Name, out)
		}
		return err
	})
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// Endpoints returns etcd's client addresses.
func (c *Cluster) Endpoints() string {
	var out []string
	for _, m := range c.Stores {
		out = append(out, fmt.Sprintf("http://%s:2379", m.V4))
	}
	return strings.Join(out, ",")
}

// pause is the polling interval.
const pause = 20 * time.Millisecond

// Until calls f until it returns nil. When the context ends, it returns f's last error.
func Until(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// netConf returns the plugin list for containers of a network.
const netConf = `{"cniVersion": "1.0.0", "name": "%[1]s", "plugins": [%[2]s]}`

// ConfDir is the directory of a host's network configurations.
const ConfDir = "/run/net.d"

func (n *Node) configure(ctx context.Context) error {
	if _, err := n.Run(ctx, "mkdir", "-p", ConfDir, "/run/bin"); err != nil {
		return err
	}
	if err := n.Install(n.bin); err != nil {
		return err
	}
	return n.Configure("pods", `{"type": "ptp", "ipam": {"type": "fairlead-ipam"}}`)
}

// Install makes the programs of a directory the node's, and its plugins. An agent that runs stays as it is.
func (n *Node) Install(bin string) error {
	n.bin = bin
	links := []string{"fairlead-ipam", "bridge", "ptp", "portmap", "tuning", "host-local", "loopback", "flannel", "fairlead-net", "fairlead-policy"}
	for _, l := range links {
		path := n.Path("/run/bin/" + l)
		if err := errors.Join(os.Symlink(filepath.Join(bin, "fairlead-cni"), path+".new"), os.Rename(path+".new", path)); err != nil {
			return err
		}
	}
	return nil
}

// Configure writes a network configuration with one or more plugins.
func (n *Node) Configure(name, plugins string) error {
	return os.WriteFile(n.Path(filepath.Join(ConfDir, name+".conflist")), fmt.Appendf(nil, netConf, name, plugins), 0o644)
}

// Start starts the node's agent.
func (n *Node) Start() (err error) {
	argv := []string{filepath.Join(n.bin, "fairlead"), "agent", "--node", n.Name}
	if len(n.c.Stores) > 0 {
		argv = append(argv, "--store-etcd-endpoints", n.c.Endpoints())
	}
	if n.c.Network != "" {
		argv = append(argv, "--network", n.c.Network)
	}
	argv = slices.Concat(n.Wrap, argv, n.c.Agent, n.Flags)
	n.Agent, err = n.Host.Start(filepath.Join(n.c.Dir, n.Name+".log"), n.env(), argv...)
	return err
}

func (n *Node) env() []string {
	return []string{"NETCONFPATH=" + ConfDir, "CNI_PATH=/run/bin", "FAIRLEAD_LIB=", "FAIRLEAD_RUN=", "FAIRLEAD_AGENT_NODE=" + n.Name}
}

// Fairlead runs a command of fairlead on the node.
func (n *Node) Fairlead(ctx context.Context, args ...string) (string, error) {
	return n.FairleadWith(ctx, nil, args...)
}

// FairleadWith is Fairlead with additional environment variables.
func (n *Node) FairleadWith(ctx context.Context, env []string, args ...string) (string, error) {
	return n.run(ctx, append(n.env(), env...), append([]string{filepath.Join(n.bin, "fairlead")}, args...)...)
}

// Cluster runs a fairlead command that queries the store.
func (n *Node) Cluster(ctx context.Context, args ...string) (string, error) {
	if len(n.c.Stores) > 0 {
		args = append(args, "--store-etcd-endpoints", n.c.Endpoints())
	}
	return n.Fairlead(ctx, args...)
}

// Ready waits until every agent is ready, knows all nodes, and has a block.
func (c *Cluster) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, n := range c.Nodes {
		if err := Until(ctx, func() error { return n.ready(ctx) }); err != nil {
			return fmt.Errorf("node %s: %w: %s", n.Name, err, tail(n.Agent.Log()))
		}
	}
	return nil
}

func (n *Node) ready(ctx context.Context) error {
	select {
	case <-n.Agent.Done():
		return errors.New("its agent ended")
	default:
	}
	out, err := n.Fairlead(ctx, "agent", "status", "--json")
	if err != nil {
		return err
	}
	var s struct {
		Nodes int
		Store string
		Peers int
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return err
	}
	if want := len(n.c.Nodes); len(n.c.Stores) > 0 && (s.Nodes != want || s.Peers != want-1) {
		return fmt.Errorf("it knows %d nodes and %d with blocks, of %d", s.Nodes, s.Peers+1, want)
	}
	return nil
}

// Attach creates a container on the node, attaches it to a configured network, and returns its address.
func (n *Node) Attach(ctx context.Context, name, network string) (netip.Addr, error) {
	if err := n.Container(ctx, name); err != nil {
		return netip.Addr{}, err
	}
	return n.Add(ctx, name, network, "eth0")
}

// Add attaches an existing container.
func (n *Node) Add(ctx context.Context, name, network, ifName string) (netip.Addr, error) {
	return n.AddWith(ctx, nil, name, network, ifName)
}

// AddWith is Add with additional environment variables, such as CNI_ARGS or CAP_ARGS.
func (n *Node) AddWith(ctx context.Context, env []string, name, network, ifName string) (netip.Addr, error) {
	out, err := n.FairleadWith(ctx, env, "add", network, name, "--ifname", ifName)
	if err != nil {
		return netip.Addr{}, err
	}
	var r struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(out))).Decode(&r); err != nil || len(r.IPs) == 0 {
		return netip.Addr{}, fmt.Errorf("node %s: add %s: no address in %s: %w", n.Name, name, out, err)
	}
	return r.IPs[0].Address.Addr(), nil
}
