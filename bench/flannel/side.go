package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/examples"
	"github.com/fairlead/fairlead/internal/lab"
)

const (
	netConf    = `{"Network": "10.128.0.0/9", "Backend": {"Type": "vxlan"}}`
	subnetFile = "/run/flannel/subnet.env"
)

// side is one of the two programs, with its own lab.
type side struct {
	name  string
	c     *lab.Cluster
	start func(n *lab.Node) (*lab.Process, error)
	keys  func(i int) map[string]string // keys of a simulated node

	b      *lab.Node // a host that stays until the end
	agent  *lab.Process
	client *client
}

// newSide creates a lab with a store and a host. The program runs on the host, which has a container.
func newSide(ctx context.Context, name, bin, dir, flanneld string) (*side, error) {
	dir = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c, err := lab.NewCluster(ctx, lab.Options{Members: 1, Bin: bin, Dir: dir})
	if err != nil {
		return nil, err
	}
	s := &side{name: name, c: c, start: startFlanneld(c, dir, flanneld), keys: flannelKeys}
	if name == ours {
		conf := filepath.Join(dir, "net-conf.json")
		if err := os.WriteFile(conf, []byte(netConf), 0o644); err != nil {
			return nil, err
		}
		s.keys = ourKeys
		s.start = func(n *lab.Node) (*lab.Process, error) {
			return n.Host.Start(filepath.Join(dir, n.Name+".log"), []string{"FAIRLEAD_LIB=", "FAIRLEAD_RUN="}, filepath.Join(bin, "fairlead"), "agent", "--node", n.Name,
				"--store-etcd-endpoints", c.Endpoints(), "--network-file", conf, "--flannel-subnet-file", subnetFile)
		}
	}
	return s, s.begin(ctx)
}

// startFlanneld returns a function that starts flanneld on a host.
func startFlanneld(c *lab.Cluster, dir, program string) func(*lab.Node) (*lab.Process, error) {
	return func(n *lab.Node) (*lab.Process, error) {
		return n.Host.Start(filepath.Join(dir, n.Name+".log"), nil, program, "--etcd-endpoints", c.Endpoints(), "--iface", "eth0", "--subnet-file", subnetFile, "--ip-masq")
	}
}

func (s *side) begin(ctx context.Context) (err error) {
	if err := s.c.Put(ctx, "/coreos.com/network/config", netConf); err != nil {
		return err
	}
	if s.b, err = s.join(ctx, "b"); err != nil {
		return err
	}
	if s.client, err = dial(s.b.Netns(), s.c.Stores[0].V4); err != nil {
		return err
	}
	if s.agent, err = s.start(s.b); err != nil {
		return err
	}
	if err := s.leased(ctx, s.b); err != nil {
		return err
	}
	_, err = s.b.Attach(ctx, "c1", "cbr0")
	return err
}

// join creates a host with flannel's list, and starts nothing.
func (s *side) join(ctx context.Context, name string) (*lab.Node, error) {
	n, err := s.c.Join(ctx, name)
	if err != nil {
		return nil, err
	}
	list, err := examples.Networks.ReadFile("50-flannel.conflist")
	if err != nil {
		return nil, err
	}
	return n, os.WriteFile(n.Path(lab.ConfDir+"/50-flannel.conflist"), list, 0o644)
}

const tick = time.Millisecond

// leased waits for a host's subnet.
func (s *side) leased(ctx context.Context, n *lab.Node) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(tick) {
		if raw, err := os.ReadFile(n.Path(subnetFile)); err == nil && strings.Contains(string(raw), "FLANNEL_IPMASQ") {
			return ctx.Err()
		}
	}
	return errors.New(s.name + ": host " + n.Name + " has no subnet")
}

// flannelKeys returns the keys of a simulated node with the subnet 10.250.i.0/24.
func flannelKeys(i int) map[string]string {
	return map[string]string{
		fmt.Sprintf("/coreos.com/network/subnets/10.250.%d.0-24", i): fmt.Sprintf(
			`{"PublicIP":"198.18.1.%d","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:%02x"}}`, i, i),
	}
}

func ourKeys(i int) map[string]string {
	return map[string]string{
		fmt.Sprintf("/fairlead/nodes/sim%d", i):                   fmt.Sprintf(`{"id":"sim%d","addresses":["198.18.1.%d/16"]}`, i, i),
		fmt.Sprintf("/fairlead/blocks/default/10.250.%d.0-24", i): fmt.Sprintf(`{"node":"sim%d","subnet":"10.128.0.0/9"}`, i),
	}
}
