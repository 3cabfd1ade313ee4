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
	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// scene is a configuration whose ADD and DEL are interrupted. In conf, $IPAM is a host-local configuration, $PREV the
// result of earlier plugins, and $WORK the parent of the state directories.
type scene struct {
	name    string
	conf    string
	plugin  string // the plugin to run; if empty, the conf's type
	fused   bool   // the list runs as one plugin process, as fairlead fuse writes it
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

// singlePlugin returns a scene with a single plugin's configuration.
func singlePlugin(name, typ, keys string) scene {
	return scene{name: name, conf: `{"cniVersion": "1.1.0", "name": "n", "type": "` + typ + `", ` + keys + `}`}
}

// chainedPlugin returns a scene with a chained plugin on an existing interface.
func chainedPlugin(name, typ, keys string) scene {
	s := singlePlugin(name, typ, strings.TrimSuffix("$PREV, "+keys, ", "))
	s.chained = true
	return s
}

func (s scene) with(f func(*scene)) scene { f(&s); return s }

func withNeeds(features ...string) func(*scene) { return func(s *scene) { s.needs = features } }

// scenes returns all scenes.
func scenes() []scene {
	all := []scene{
		singlePlugin("bridge", "bridge", `"isDefaultGateway": true, $IPAM`),
		singlePlugin("bridge/masquerade", "bridge", `"isGateway": true, "ipMasq": true, $IPAM`),
		singlePlugin("bridge/iptables", "bridge", `"isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", $IPAM`),
		singlePlugin("bridge/port", "bridge", `"hairpinMode": true, "portIsolation": true, "mtu": 1400, "mac": "02:00:00:00:00:99", $IPAM`),
		singlePlugin("bridge/macspoofchk", "bridge", `"macspoofchk": true, "promiscMode": true, $IPAM`).with(withNeeds("nftables for bridges")),
		singlePlugin("bridge/vlan", "bridge", `"vlan": 100, "isGateway": true, "vlanTrunk": [], $IPAM`).with(withNeeds("bridge VLAN filtering", "vlan")),
		singlePlugin("bridge/trunk", "bridge", `"vlanTrunk": [{"minID": 10, "maxID": 13}], $IPAM`).with(withNeeds("bridge VLAN filtering")),
		singlePlugin("bridge/netkit", "bridge", `"linkType": "netkit", "isGateway": true, $IPAM`).with(withNeeds("netkit")),
		singlePlugin("ptp", "ptp", `"ipMasq": true, $IPAM`),
		singlePlugin("ptp/netkit", "ptp", `"linkType": "netkit", $IPAM`).with(withNeeds("netkit")),
		singlePlugin("macvlan", "macvlan", `"master": "dev0", $IPAM`).with(withNeeds("macvlan")),
		singlePlugin("ipvlan", "ipvlan", `"master": "dev0", $IPAM`).with(withNeeds("ipvlan")),
		singlePlugin("vlan", "vlan", `"master": "dev0", "vlanId": 5, $IPAM`).with(withNeeds("vlan")),
		singlePlugin("dummy", "dummy", `$IPAM`).with(withNeeds("dummy")),
		singlePlugin("host-device", "host-device", `"device": "dev0", $IPAM`),
		singlePlugin("host-device/network", "host-device", `"device": "dev0", "useInterfaceNetwork": true, $IPAM`).with(func(s *scene) {
			s.setup = []string{"ip addr add 192.0.2.5/24 brd + dev dev0", "ip route add 198.51.100.0/24 via 192.0.2.9 dev dev0"}
		}),
		singlePlugin("loopback", "loopback", `"dns": {}`),
		singlePlugin("tap", "tap", `"multiQueue": true, $IPAM`).with(withNeeds("tap")),
		singlePlugin("host-local", "bridge", `$IPAM`).with(func(s *scene) { s.plugin = "host-local" }),
		singlePlugin("fairlead-ipam", "bridge", `"ipam": {"type": "fairlead-ipam"}`).with(func(s *scene) { s.plugin = "fairlead-ipam" }).with(withBlocks),
		singlePlugin("ptp/fairlead-ipam", "ptp", `"ipam": {"type": "fairlead-ipam"}`).with(withBlocks),
		singlePlugin("whereabouts", "bridge", `"ipam": {"type": "whereabouts", "ipRanges": [{"range": "10.1.0.0/24"}, {"range": "fd01::/112"}]}`).with(func(s *scene) { s.plugin, s.prepare = "whereabouts", agent }),
		singlePlugin("fairlead-net", "fairlead-net", `"network": "$SOCKET"`).with(func(s *scene) { s.prepare = isolatedNetwork }),
		singlePlugin("ptp/whereabouts", "ptp", `"ipam": {"type": "whereabouts", "range": "10.1.0.0/24", "gateway": "10.1.0.254"}`).with(func(s *scene) { s.prepare = agent }),
		singlePlugin("static", "bridge", `"ipam": {"type": "static", "addresses": [{"address": "10.1.0.9/24"}]}`).with(func(s *scene) { s.plugin = "static" }),
		chainedPlugin("portmap", "portmap", `"runtimeConfig": {`+twoPorts+`}`),
		chainedPlugin("portmap/iptables", "portmap", `"backend": "iptables", "runtimeConfig": {`+twoPorts+`}`),
		chainedPlugin("bandwidth", "bandwidth", slow),
		chainedPlugin("bandwidth/container", "bandwidth", `"egressAt": "container", `+slow),
		chainedPlugin("firewall", "firewall", `"ingressPolicy": "same-bridge"`).with(onBridge),
		chainedPlugin("firewall/iptables", "firewall", `"backend": "iptables"`),
		chainedPlugin("tuning", "tuning", `"mac": "02:11:22:33:44:55", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 50, "sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1"}`),
		chainedPlugin("sbr", "sbr", ""),
		chainedPlugin("fairlead-policy", "fairlead-policy", `"labels": {"app": "x"}`).with(func(s *scene) { s.prepare = policyAgent }),
		chainedPlugin("vrf", "vrf", `"vrfname": "blue"`).with(withNeeds("vrf")),
		singlePlugin("flannel", "flannel", `"subnetFile": "$WORK/subnet.env", "delegate": {"isDefaultGateway": true}`).with(withSubnetFile),
		singlePlugin("minicni", "minicni", `"bridge": "minicni0", "mtu": 1500, "subnet": "10.244.7.0/24"`),
		singlePlugin("fairlead-chain", "fairlead-chain", `"runtimeConfig": {`+twoPorts+`}, "plugins": [{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, $IPAM},
			{"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "bandwidth", `+slow+`}, {"type": "firewall"},
			{"type": "tuning", "mtu": 1400, "sysctl": {"net.core.somaxconn": "77"}}, {"type": "sbr"}]`).with(func(s *scene) { s.plugin = "fairlead-chain" }),
		singlePlugin("fairlead-pod", "fairlead-pod", `"confDirs": ["$WORK/confs"], "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"fairlead.io/networks": "more"}},
			"plugins": [{"type": "ptp", $IPAM}]`).with(func(s *scene) { s.plugin, s.prepare = "fairlead-pod", secondNetwork }),
		singlePlugin("dhcp", "macvlan", `"master": "lan0", "ipam": {"type": "dhcp", "daemonSocketPath": "$SOCKET"}`).with(withNeeds("macvlan")).with(func(s *scene) { s.prepare = lan }),
		singlePlugin("ovs", "ovs", `"bridge": "ovs0", "vlan": 10, "socket_file": "$SOCKET", $IPAM`).with(func(s *scene) { s.prepare = openVSwitch }),
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

// withSubnetFile writes flanneld's subnet file for this host.
func withSubnetFile(s *scene) {
	s.prepare = func(m *machine) string {
		text := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.9.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
		if err := os.WriteFile(filepath.Join(m.Dir, "subnet.env"), []byte(text), 0o600); err != nil {
			m.T.Fatal(err)
		}
		return ""
	}
}

// withBlocks writes the agent's file of this host's address blocks. No agent runs, but the journal is read: a DEL that
// cannot read the file writes there.
func withBlocks(s *scene) {
	s.prepare = func(m *machine) string {
		dir := local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run"))
		journal(m, dir)
		m.waitIdle = func() {
			_, err := dir.TakeReleases(m.T.Context())
			must(m.T, errors.Join(err, dir.ClearTaken()))
		}
		four, six := netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd01::/120")
		n := &local.Network{Name: "default", Node: "here", Subnets: []local.Subnet{{CIDR: four, Blocks: []netip.Prefix{four}}, {CIDR: six, Blocks: []netip.Prefix{six}}}}
		must(m.T, dir.Write(n))
		return ""
	}
}

// secondNetwork writes the file of a pod's second network.
func secondNetwork(m *machine) string {
	dir := filepath.Join(m.Dir, "confs")
	conf := `{"cniVersion": "1.1.0", "name": "more", "type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1"}]}}`
	must(m.T, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "more.json"), []byte(conf), 0o600)))
	return ""
}

// lan creates a bridge with a DHCP server, and starts a daemon that keeps leases.
func lan(m *machine) string {
	n := dhcptest.New(m.T, "lan0", "10.0.0.1/24")
	n.Dnsmasq("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,1h")
	socket := filepath.Join(m.Dir, "s")
	dhcptest.Daemon(m.T, filepath.Join(m.Bin(), plugintest.Daemon), socket, filepath.Join(m.Dir, "leases"))
	return socket
}

func openVSwitch(m *machine) string {
	sw := ovstest.New(m.T)
	m.extra = func() string { return sw.State() }
	return sw.Socket()
}

// lists returns the example networks, each as separate processes and fused into one.
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
			withSubnetFile(&s)
		}
		fused := s
		fused.name, fused.fused = s.name+"/fused", true
		out = append(out, s, fused)
	}
	return out
}

// lanOnSwitch creates a switch with a DHCP server in another container, and starts a daemon.
func lanOnSwitch(m *machine) string {
	socket, server := openVSwitch(m), kerneltest.Netns(m.T)
	cmd := exec.Command(filepath.Join(m.Dir, "bin", "ovs"))
	cmd.Stdin = strings.NewReader(`{"cniVersion": "1.1.0", "name": "servers", "type": "ovs", "bridge": "ovs0", "socket_file": "` + socket + `",
		"ipam": {"type": "static", "addresses": [{"address": "10.3.0.1/24"}]}}`)
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=server", "CNI_NETNS="+server, "CNI_IFNAME=eth0", "CNI_PATH="+m.Dir+"/bin", "FAIRLEAD_RUN="+m.Dir+"/server")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.T.Fatalf("the server's attachment: %v: %s", err, out)
	}
	dnsmasq := exec.Command("nsenter", "--net="+server, "--", "dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--port=0", "--no-ping",
		"--user=root", "--pid-file=", "--bind-dynamic", "--interface=eth0", "--dhcp-leasefile="+m.Dir+"/dnsmasq", "--dhcp-authoritative",
		"--dhcp-range=10.3.0.50,10.3.0.250,255.255.255.0,1h")
	if err := dnsmasq.Start(); err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() {
		_ = dnsmasq.Process.Kill()
		_ = dnsmasq.Wait()
	})
	dhcptest.Daemon(m.T, filepath.Join(m.Bin(), plugintest.Daemon), filepath.Join(m.Dir, "s"), filepath.Join(m.Dir, "leases"))
	return socket
}
