package crash

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/examples"
	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/internal/ovstest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// scene is a configuration whose ADD and DEL are interrupted. In conf, $IPAM is a host-local configuration, $PREV the
// result of earlier plugins, and $WORK the parent of the state directories.
type scene struct {
	name    string
	conf    string
	plugin  string // the program; "": the conf's type
	fused   bool   // a list as one process
	list    bool   // a runtime runs the list
	chained bool   // the container already has an eth0
	lacksGC bool   // its CNI version has no GC
	args    string // capability arguments
	needs   []string
	setup   []string                       // commands to run on the host
	prepare func(*machine) (socket string) // returns the value of $SOCKET in conf
	long    bool                           // too long for the sample
}

const (
	hostLocal  = `"ipam": {"type": "host-local", "dataDir": "$WORK/ipam", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd01::/64"}]]}`
	prevResult = `"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": "$NETNS"}],
		"ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 1}, {"address": "fd01::2/64", "interface": 1}], "routes": [{"dst": "0.0.0.0/0"}]}`
	twoPorts = `"portMappings": [{"hostPort": 8080, "containerPort": 80}, {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "127.0.0.1"}]`
	slow     = `"ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000`
)

func (s *scene) runtime() bool {
	return s.list || strings.Contains(s.conf, `"plugins"`) && s.plugin == ""
}

func (s *scene) program() string {
	if s.plugin != "" {
		return s.plugin
	}
	_, rest, _ := strings.Cut(s.conf, `"type": "`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

// one returns a scene with a single plugin's configuration.
func one(name, typ, keys string) scene {
	return scene{name: name, conf: `{"cniVersion": "1.1.0", "name": "n", "type": "` + typ + `", ` + keys + `}`}
}

// onEth0 returns a scene with a chained plugin on an existing interface.
func onEth0(name, typ, keys string) scene {
	s := one(name, typ, strings.TrimSuffix("$PREV, "+keys, ", "))
	s.chained = true
	return s
}

func (s scene) with(f func(*scene)) scene { f(&s); return s }

func needing(features ...string) func(*scene) { return func(s *scene) { s.needs = features } }

// scenes returns all scenes.
func scenes() []scene {
	all := []scene{
		one("bridge", "bridge", `"isDefaultGateway": true, $IPAM`),
		one("bridge/masquerade", "bridge", `"isGateway": true, "ipMasq": true, $IPAM`),
		one("bridge/iptables", "bridge", `"isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", $IPAM`),
		one("bridge/port", "bridge", `"hairpinMode": true, "portIsolation": true, "mtu": 1400, "mac": "02:00:00:00:00:99", $IPAM`),
		one("bridge/macspoofchk", "bridge", `"macspoofchk": true, "promiscMode": true, $IPAM`).with(needing("nftables for bridges")),
		one("bridge/vlan", "bridge", `"vlan": 100, "isGateway": true, "vlanTrunk": [], $IPAM`).with(needing("bridge VLAN filtering", "vlan")),
		one("bridge/trunk", "bridge", `"vlanTrunk": [{"minID": 10, "maxID": 13}], $IPAM`).with(needing("bridge VLAN filtering")),
		one("bridge/netkit", "bridge", `"linkType": "netkit", "isGateway": true, $IPAM`).with(needing("netkit")),
		one("ptp", "ptp", `"ipMasq": true, $IPAM`),
		one("ptp/netkit", "ptp", `"linkType": "netkit", $IPAM`).with(needing("netkit")),
		one("macvlan", "macvlan", `"master": "dev0", $IPAM`).with(needing("macvlan")),
		one("ipvlan", "ipvlan", `"master": "dev0", $IPAM`).with(needing("ipvlan")),
		one("vlan", "vlan", `"master": "dev0", "vlanId": 5, $IPAM`).with(needing("vlan")),
		one("dummy", "dummy", `$IPAM`).with(needing("dummy")),
		one("host-device", "host-device", `"device": "dev0", $IPAM`),
		one("loopback", "loopback", `"dns": {}`),
		one("tap", "tap", `"multiQueue": true, $IPAM`).with(needing("tap")),
		one("host-local", "bridge", `$IPAM`).with(func(s *scene) { s.plugin = "host-local" }),
		one("fairlead-ipam", "bridge", `"ipam": {"type": "fairlead-ipam"}`).with(func(s *scene) { s.plugin = "fairlead-ipam" }).with(blocks),
		one("ptp/fairlead-ipam", "ptp", `"ipam": {"type": "fairlead-ipam"}`).with(blocks),
		one("whereabouts", "bridge", `"ipam": {"type": "whereabouts", "ipRanges": [{"range": "10.1.0.0/24"}, {"range": "fd01::/112"}]}`).with(func(s *scene) { s.plugin, s.prepare = "whereabouts", agent }),
		one("fairlead-net", "fairlead-net", `"network": "$SOCKET"`).with(func(s *scene) { s.prepare = spaced }),
		one("ptp/whereabouts", "ptp", `"ipam": {"type": "whereabouts", "range": "10.1.0.0/24", "gateway": "10.1.0.254"}`).with(func(s *scene) { s.prepare = agent }),
		one("static", "bridge", `"ipam": {"type": "static", "addresses": [{"address": "10.1.0.9/24"}]}`).with(func(s *scene) { s.plugin = "static" }),
		onEth0("portmap", "portmap", `"runtimeConfig": {`+twoPorts+`}`),
		onEth0("portmap/iptables", "portmap", `"backend": "iptables", "runtimeConfig": {`+twoPorts+`}`),
		onEth0("bandwidth", "bandwidth", slow),
		onEth0("bandwidth/container", "bandwidth", `"egressAt": "container", `+slow),
		onEth0("firewall", "firewall", `"ingressPolicy": "same-bridge"`).with(onBridge),
		onEth0("firewall/iptables", "firewall", `"backend": "iptables"`),
		onEth0("tuning", "tuning", `"mac": "02:11:22:33:44:55", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 50, "sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1"}`),
		onEth0("sbr", "sbr", ""),
		onEth0("vrf", "vrf", `"vrfname": "blue"`).with(needing("vrf")),
		one("flannel", "flannel", `"subnetFile": "$WORK/subnet.env", "delegate": {"isDefaultGateway": true}`).with(leased),
		one("minicni", "minicni", `"bridge": "minicni0", "mtu": 1500, "subnet": "10.244.7.0/24"`),
		one("fairlead-chain", "fairlead-chain", `"runtimeConfig": {`+twoPorts+`}, "plugins": [{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, $IPAM},
			{"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "bandwidth", `+slow+`}, {"type": "firewall"},
			{"type": "tuning", "mtu": 1400, "sysctl": {"net.core.somaxconn": "77"}}, {"type": "sbr"}]`).with(func(s *scene) { s.plugin = "fairlead-chain" }),
		one("dhcp", "macvlan", `"master": "lan0", "ipam": {"type": "dhcp", "daemonSocketPath": "$SOCKET"}`).with(needing("macvlan")).with(func(s *scene) { s.prepare = lan }),
		one("ovs", "ovs", `"bridge": "ovs0", "vlan": 10, "socket_file": "$SOCKET", $IPAM`).with(func(s *scene) { s.prepare = vswitch }),
	}
	return append(all, lists()...)
}

// onBridge attaches the interface's host end to a bridge, and adds a third-party chain that drops forwarded packets.
func onBridge(s *scene) {
	prev := strings.NewReplacer(`[{"name": "host0"}`, `[{"name": "br0"}, {"name": "host0"}`, `"interface": 1`, `"interface": 2`).Replace(prevResult)
	s.conf = strings.Replace(s.conf, "$PREV", prev, 1)
	s.setup = []string{
		"ip link add br0 address 02:00:00:00:00:0a type bridge", "ip link set br0 up", "ip link set host0 master br0",
		"nft add table ip filter", "nft add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }",
	}
}

// leased writes flanneld's subnet file for this host.
func leased(s *scene) {
	s.prepare = func(m *machine) string {
		text := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.9.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
		if err := os.WriteFile(filepath.Join(m.work, "subnet.env"), []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
		return ""
	}
}

// blocks writes the agent's file of this host's address blocks. The only other part of the agent is a reader of the
// journal: a DEL that cannot read the file writes there.
func blocks(s *scene) {
	s.prepare = func(m *machine) string {
		dir := local.Open(filepath.Join(m.work, "lib"), filepath.Join(m.work, "run"))
		journal(m, dir)
		m.rest = func() {
			_, err := dir.Taken(m.t.Context())
			must(m.t, errors.Join(err, dir.Forget()))
		}
		four, six := netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd01::/120")
		n := &local.Network{Name: "default", Node: "here", Subnets: []local.Subnet{{CIDR: four, Blocks: []netip.Prefix{four}}, {CIDR: six, Blocks: []netip.Prefix{six}}}}
		must(m.t, dir.Write(n))
		return ""
	}
}

// lan creates a bridge with a DHCP server, and starts a daemon that keeps leases.
func lan(m *machine) string {
	n := dhcptest.New(m.t, "lan0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h")
	socket := filepath.Join(m.work, "s")
	startDaemon(m, socket, filepath.Join(m.work, "leases"))
	return socket
}

func vswitch(m *machine) string {
	sw := ovstest.New(m.t)
	m.extra = func() string { return sw.State() }
	return sw.Socket()
}

// lists returns the examples, each as separate processes and as one.
func lists() (out []scene) {
	for _, e := range []struct {
		file    string
		prepare func(*machine) string
		replace [2]string
		version string
	}{
		{file: "10-my-network.conflist"},
		{file: "20-dbnet.conflist"},
		{file: "21-dbnet-0.3.1.conf"},
		{file: "30-wan.conf", prepare: lan, replace: [2]string{`"type": "dhcp",`, `"type": "dhcp", "daemonSocketPath": "$SOCKET",`}},
		{file: "40-pci-ovs.conf", prepare: lanOnSwitch, replace: [2]string{`"type": "dhcp",`, `"type": "dhcp", "daemonSocketPath": "$WORK/s",`}},
		{file: "50-flannel.conflist", replace: [2]string{`"type": "flannel",`, `"type": "flannel", "subnetFile": "$WORK/subnet.env",`}},
		{file: "60-minicni.conf"},
	} {
		raw, err := examples.Networks.ReadFile(e.file)
		if err != nil {
			panic(err) // impossible: the file is embedded
		}
		conf := string(raw)
		if e.replace[0] != "" {
			conf = strings.ReplaceAll(conf, e.replace[0], e.replace[1])
		}
		name, _, _ := strings.Cut(e.file, ".conf")
		s := scene{name: "example/" + name, conf: conf, list: true, lacksGC: true, prepare: e.prepare, args: `{` + twoPorts + `}`}
		switch name {
		case "30-wan":
			s.conf = strings.ReplaceAll(s.conf, `"eth0"`, `"lan0"`)
			s.needs = []string{"macvlan"}
		case "40-pci-ovs":
			s.long = true
			s.conf = strings.ReplaceAll(s.conf, `"type": "ovs",`, `"type": "ovs", "socket_file": "$SOCKET",`)
		case "50-flannel":
			leased(&s)
		}
		fused := s
		fused.name, fused.fused = s.name+"/fused", true
		out = append(out, s, fused)
	}
	return out
}

// lanOnSwitch creates a switch with a DHCP server in another container, and starts a daemon.
func lanOnSwitch(m *machine) string {
	socket, server := vswitch(m), kerneltest.Netns(m.t)
	cmd := exec.Command(filepath.Join(m.work, "bin", "ovs"))
	cmd.Stdin = strings.NewReader(`{"cniVersion": "1.1.0", "name": "servers", "type": "ovs", "bridge": "ovs0", "socket_file": "` + socket + `",
		"ipam": {"type": "static", "addresses": [{"address": "10.3.0.1/24"}]}}`)
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=server", "CNI_NETNS="+server, "CNI_IFNAME=eth0", "CNI_PATH="+m.work+"/bin", "FAIRLEAD_RUN="+m.work+"/server")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("the server's attachment: %v: %s", err, out)
	}
	dnsmasq := exec.Command("nsenter", "--net="+server, "--", "dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--port=0", "--no-ping",
		"--user=root", "--pid-file=", "--bind-dynamic", "--interface=eth0", "--dhcp-leasefile="+m.work+"/dnsmasq", "--dhcp-authoritative",
		"--dhcp-range=10.3.0.50,10.3.0.250,255.255.255.0,1h")
	if err := dnsmasq.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = dnsmasq.Process.Kill()
		_ = dnsmasq.Wait()
	})
	startDaemon(m, filepath.Join(m.work, "s"), filepath.Join(m.work, "leases"))
	return socket
}
