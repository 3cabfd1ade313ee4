package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/lab"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// newNetworks starts a cluster of the hosts a and b with two isolated networks: the cluster assigns the addresses of
// one to each node in blocks, and those of a pool of the other one by one.
func newNetworks(t *testing.T) *lab.Cluster {
	t.Helper()
	kerneltest.OptIn(t, optIn)
	kerneltest.Needs(t, "vxlan")
	build(t)
	c, err := lab.NewCluster(t.Context(), lab.Options{Nodes: []string{"a", "b"}, Members: 1, Network: `{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true}`, Bin: bin, Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(c.Close)
	file := filepath.Join(t.TempDir(), "networks.yaml")
	must(t, os.WriteFile(file, []byte(`
name: blue
isolated: true
subnets: [{cidr: 10.9.0.0/24}]
---
name: single
isolated: true
subnets: [{cidr: 10.7.0.0/24}, {name: single, cidr: 10.8.0.0/24, assign: cluster}, {name: single, cidr: "fd08::/64", assign: cluster}]
`), 0o644))
	_, err = c.Nodes[0].Cluster(t.Context(), "network", "apply", "--file", file)
	must(t, err)
	return c
}

// TestFixedAddresses runs containers with --ip and --ip6 on networks of the cluster.
func TestFixedAddresses(t *testing.T) {
	c := newNetworks(t)
	a, b := newMachine(t, c.Nodes[0].Host), newMachine(t, c.Nodes[1].Host)
	for _, m := range []*machine{a, b} {
		m.docker("network", "create", "--driver", "fairlead", "--opt", "type=cluster", "--opt", "network=single",
			"--ipam-driver", "fairlead", "--ipam-opt", "network=single", "--ipv6", "--subnet", "10.8.0.0/24", "--subnet", "fd08::/64", "single")
		m.docker("network", "create", "--driver", "fairlead", "--opt", "type=cluster", "--opt", "network=blue",
			"--ipam-driver", "fairlead", "--ipam-opt", "network=blue", "--subnet", "10.9.0.0/24", "blue")
	}
	a.run("one", "--network", "single", "--ip", "10.8.0.77", "--ip6", "fd08::77", "--hostname", "one")
	b.run("two", "--network", "single", "--hostname", "two")
	b.wget("two", "http://10.8.0.77/", "one")
	b.wget("two", "http://[fd08::77]/", "one")
	for _, x := range []struct{ flag, address, want string }{
		{"--ip", "10.8.0.77", "10.8.0.77 belongs to"},
		{"--ip6", "fd08::77", "fd08::77 belongs to"},
		{"--ip", "10.8.1.1", "10.8.1.1: It does not belong to any of this network's subnets"},
		{"--ip", "10.8.0.1", "10.8.0.1 is not in"}, // the gateway
	} {
		for _, m := range []*machine{a, b} {
			if _, err := m.try("run", "--rm", "--network", "single", x.flag, x.address, "box", "echo"); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s %s on %s: %v, want an error with %q", x.flag, x.address, m.Name, err, x.want)
			}
		}
	}
	// As if dockerd had been killed before it created an endpoint for the address.
	a.call("RequestAddress", "Ipam", `{"PoolID":"single_10.8.0.0-24","Address":"10.8.0.200"}`)
	b.free("10.8.0.200")
	a.docker("restart", "--time", "0", "one")
	b.wget("two", "http://10.8.0.77/", "one")
	a.docker("rm", "--force", "one")
	b.free("10.8.0.77")
	b.run("three", "--network", "single", "--ip", "10.8.0.77", "--hostname", "three")
	b.wget("two", "http://10.8.0.77/", "three")

	a.run("four", "--network", "blue", "--hostname", "four")
	address := strings.Fields(a.in("four", "ip", "-o", "-4", "addr", "show", "eth0"))[3]
	address, _, _ = strings.Cut(address, "/")
	if _, err := a.try("run", "--rm", "--network", "blue", "--ip", address, "box", "echo"); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("--ip %s, which another container has: %v", address, err)
	}
	a.docker("rm", "--force", "four")
	a.run("five", "--network", "blue", "--ip", address, "--hostname", "five")
	b.docker("network", "connect", "blue", "two")
	b.wget("two", "http://"+address+"/", "five")
	a.ok(1)
	b.ok(3)
	for _, m := range []*machine{a, b} {
		m.remove()
		m.noReservations()
	}
	if out, err := c.Nodes[0].Cluster(t.Context(), "ipam", "check"); err != nil {
		t.Errorf("ipam check: %v: %s", err, out)
	}
}

// free waits until a container can have an address, which another host releases.
func (m *machine) free(address string) {
	m.t.Helper()
	kerneltest.Within(m.t, 30*time.Second, func() error {
		_, err := m.try("run", "--rm", "--network", "single", "--ip", address, "box", "echo")
		return err
	})
}

// noReservations checks that no address is reserved for an endpoint.
func (m *machine) noReservations() {
	m.t.Helper()
	if left, err := filepath.Glob(m.Path("/var/lib/cni/fairlead/docker/reserved/*")); err != nil || len(left) > 0 {
		m.t.Errorf("reserved addresses are left: %v, %v", left, err)
	}
}
