package security

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/internal/ovstest"
	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/internal/systemdunit"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// pluginCase is a plugin with a configuration that uses all its features.
type pluginCase struct {
	plugin string
	conf   string // after cniVersion, name and type
	needs  string // kernel features
	chain  bool   // it is chained: it gets an existing interface in prevResult
}

func pluginCases() []pluginCase {
	ports := `"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}, {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "127.0.0.1"}]}`
	return []pluginCase{
		{plugin: "bridge", conf: `"isDefaultGateway": true, "ipMasq": true, "antiSpoof": true, "macspoofchk": true, "hairpinMode": true, $IPAM`, needs: "nftables for bridges"},
		{plugin: "ptp", conf: `"ipMasq": true, "antiSpoof": true, $IPAM`},
		{plugin: "macvlan", conf: `"master": "dev0", $IPAM`, needs: "macvlan"},
		{plugin: "ipvlan", conf: `"master": "dev0", $IPAM`, needs: "ipvlan"},
		{plugin: "vlan", conf: `"master": "dev0", "vlanId": 5, $IPAM`, needs: "vlan"},
		{plugin: "host-device", conf: `"device": "dev0", $IPAM`},
		{plugin: "tap", conf: `"multiQueue": true, $IPAM`, needs: "tap"},
		{plugin: "dummy", conf: `$IPAM`, needs: "dummy"},
		{plugin: "loopback", conf: `"x": 1`},
		{plugin: "host-local", conf: `$IPAM`},
		{plugin: "dhcp", conf: `"ipam": {"type": "dhcp", "daemonSocketPath": "$WORK/dhcp.sock"}`},
		{plugin: "static", conf: `"ipam": {"type": "static", "addresses": [{"address": "10.1.0.2/24"}]}`},
		{plugin: "portmap", conf: `"snat": true, ` + ports, chain: true},
		{plugin: "firewall", conf: `"backend": "nftables"`, chain: true},
		{plugin: "bandwidth", conf: `"ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000`, chain: true},
		{plugin: "tuning", conf: `"mac": "02:00:00:00:00:77", "mtu": 1400, "promisc": true, "allmulti": true, "sysctl": {"net.core.somaxconn": "500"}`, chain: true},
		{plugin: "sbr", conf: `"table": 100`, chain: true},
		{plugin: "vrf", conf: `"vrfname": "red"`, needs: "vrf", chain: true},
		{plugin: "flannel", conf: `"subnetFile": "$WORK/subnet.env", "dataDir": "$WORK/flannel", "ipam": {"dataDir": "$WORK/ipam"}`},
		{plugin: "minicni", conf: `"subnet": "10.1.0.0/24"`},
		{plugin: "fairlead-chain", conf: `"capabilities": {"portMappings": true}, ` + ports + `, "plugins": [{"type": "bridge", "isGateway": true, "ipMasq": true, $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "tuning", "mtu": 1400}]`},
		{plugin: "ovs", conf: `"bridge": "ovs0", "socket_file": "$WORK/ovs.sock", $IPAM`},
	}
}

// text returns the complete configuration.
func (c pluginCase) text(m *machine) string {
	conf := `{"cniVersion": "1.0.0", "name": "n", "type": "` + c.plugin + `", ` + c.conf
	if c.chain {
		conf += `, "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": "` + m.Netns["a"] + `"}],
			"ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 1}], "routes": [{"dst": "0.0.0.0/0"}]}`
	}
	return conf + "}"
}

// withPrevResult adds the result of ADD to the configuration, as CHECK needs it.
func withPrevResult(conf, result string) string {
	if strings.Contains(conf, `"prevResult"`) || strings.TrimSpace(result) == "" {
		return conf
	}
	return strings.TrimSuffix(conf, "}") + `, "prevResult": ` + result + "}"
}

// prepare creates the call's prerequisites on the host and in the container.
func (c pluginCase) prepare(t *testing.T) *machine {
	t.Helper()
	if c.needs != "" {
		kerneltest.Needs(t, c.needs)
	}
	m := newMachine(t, "a")
	kerneltest.Run(t, "ip", "link", "add", "dev0", "address", "02:00:00:00:00:05", "type", "veth", "peer", "name", "far0")
	kerneltest.Run(t, "ip", "link", "set", "dev0", "up")
	if c.chain {
		kerneltest.Run(t, "ip", "link", "add", "host0", "type", "veth", "peer", "name", "eth0", "netns", m.Netns["a"])
		kerneltest.Run(t, "ip", "addr", "add", "10.1.0.1/24", "dev", "host0")
		kerneltest.Run(t, "ip", "link", "set", "host0", "up")
		kerneltest.In(t, m.Netns["a"], "ip", "addr", "add", "10.1.0.2/24", "dev", "eth0")
		kerneltest.In(t, m.Netns["a"], "ip", "link", "set", "eth0", "up")
		kerneltest.In(t, m.Netns["a"], "ip", "route", "add", "default", "via", "10.1.0.1")
	}
	lease := "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.0.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	if err := os.WriteFile(filepath.Join(m.Dir, "subnet.env"), []byte(lease), 0o600); err != nil {
		t.Fatal(err)
	}
	switch c.plugin {
	case "dhcp":
		m.dhcp()
	case "ovs":
		if err := os.Symlink(ovstest.New(t).Socket(), filepath.Join(m.Dir, "ovs.sock")); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// dhcp gives the container an interface on a network with a DHCP server. It starts the daemon with the capabilities of
// its systemd unit.
func (m *machine) dhcp() {
	m.T.Helper()
	n := dhcptest.New(m.T, "lan0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.59,255.255.255.0,1h")
	n.Join(m.Netns["a"], "eth0")
	argv := append(systemdunit.Setpriv(capabilityTable(m.T)["fairlead-dhcp"]), filepath.Join(m.Bin(), plugintest.Daemon), m.Dir+"/dhcp.sock", m.Dir+"/leases")
	daemon := exec.Command(argv[0], argv[1:]...)
	daemon.Stderr = os.Stderr
	if err := daemon.Start(); err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	kerneltest.Eventually(m.T, func() error { return kerneltest.Listens(m.Dir + "/dhcp.sock") })
}
