package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestParentTypes runs containers on a parent link of the host: they reach each other, and another host in the network
// of the parent.
func TestParentTypes(t *testing.T) {
	m, outside := newLab(t)
	for _, n := range []struct{ typ, options, feature string }{
		{"macvlan", "", "macvlan"}, {"ipvlan", "", "ipvlan"}, {"ipvlan", "mode=l3", "ipvlan"}, {"vlan", "vlan=7", "vlan"},
	} {
		t.Run(strings.TrimSpace(n.typ+" "+n.options), func(t *testing.T) {
			kerneltest.Needs(t, n.feature)
			args := []string{"network", "create", "--driver", "fairlead", "--opt", "type=" + n.typ, "--opt", "parent=eth0", "--subnet", "198.18.0.0/24", "--ip-range", "198.18.0.128/25", "--gateway", "198.18.0.2"}
			if n.options != "" {
				args = append(args, "--opt", n.options)
			}
			m.docker(append(args, "lan")...)
			m.run("one", "--network", "lan", "--hostname", "one")
			if n.typ == "vlan" { // one container has the whole VLAN
				if _, err := m.try("run", "--rm", "--network", "lan", "box", "echo"); err == nil || !strings.Contains(err.Error(), "VLAN 7") {
					t.Errorf("a second container in the VLAN: %v", err)
				}
				for _, line := range []string{"link add link eth0 name eth0.7 up type vlan id 7", "addr add 198.18.0.3/32 dev eth0.7", "route add 198.18.0.128/25 dev eth0.7"} {
					_, err := outside.IP(t.Context(), line)
					must(t, err)
				}
				m.in("one", "ping", "-c1", "-W2", "-I", "eth0", "198.18.0.3")
			} else {
				m.run("two", "--network", "lan", "--hostname", "two")
				m.wget("two", "http://one/", "one")
				m.in("two", "ping", "-c1", "-W2", outside.V4.String())
			}
			m.docker("rm", "--force", "one")
			_, _ = m.try("rm", "--force", "two")
			m.remove()
			m.nothingLeft()
		})
	}
}

// TestOpenVSwitch runs containers on an Open vSwitch bridge, in two VLANs.
func TestOpenVSwitch(t *testing.T) {
	m, _ := newLab(t)
	db := filepath.Join(m.dir, "db.sock")
	run := func(argv ...string) {
		t.Helper()
		_, err := m.Run(t.Context(), argv...)
		must(t, err)
	}
	run("ovsdb-tool", "create", filepath.Join(m.dir, "conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	m.start("ovsdb", "ovsdb-server", filepath.Join(m.dir, "conf.db"), "--remote=punix:"+db, "--unixctl="+filepath.Join(m.dir, "db.ctl"), "--no-chdir")
	kerneltest.Eventually(t, func() error { _, err := os.Stat(db); return err })
	run("ovs-vsctl", "--db=unix:"+db, "--retry", "--no-wait", "init")
	m.start("vswitchd", "ovs-vswitchd", "unix:"+db, "--unixctl="+filepath.Join(m.dir, "sw.ctl"), "--no-chdir")
	for i, vlan := range []string{"5", "6"} {
		m.docker("network", "create", "--driver", "fairlead", "--opt", "type=ovs", "--opt", "bridge=ovs0", "--opt", "socket="+db, "--opt", "datapath=netdev",
			"--opt", "vlan="+vlan, "--subnet", []string{"10.50.0.0/24", "10.51.0.0/24"}[i], "vlan"+vlan)
	}
	m.run("one", "--network", "vlan5", "--ip", "10.50.0.7")
	m.run("two", "--network", "vlan5")
	m.run("three", "--network", "vlan6", "--cap-add", "NET_ADMIN")
	m.in("two", "ping", "-c1", "-W2", "one")
	m.in("three", "ip", "addr", "add", "10.50.0.9/24", "dev", "eth0")
	m.fails("three", "ping", "-c1", "-W1", "-I", "10.50.0.9", "10.50.0.7")
	m.docker("rm", "--force", "one", "two", "three")
	out, err := m.Run(t.Context(), "ovs-vsctl", "--db=unix:"+db, "list-ports", "ovs0")
	if err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("ports left on the switch: %s, %v", out, err)
	}
	m.remove()
}
