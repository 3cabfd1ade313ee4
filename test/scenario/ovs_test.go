package scenario

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/examples"
	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/internal/ovstest"
	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// ovsMachine is a machine with its own Open vSwitch.
type ovsMachine struct {
	*machine
	sw *ovstest.Switch
}

func newOVSMachine(t *testing.T) *ovsMachine {
	s := &ovsMachine{newMachine(t), ovstest.New(t)}
	s.Netns["c"] = kerneltest.Netns(t)
	return s
}

// conf returns a configuration of the plugin for the test's switch, with additional keys.
func (s *ovsMachine) conf(name, keys string) string {
	return `{"cniVersion": "1.1.0", "name": "` + name + `", "type": "ovs", "bridge": "ovs0", "socket_file": "` + s.sw.Socket() + `", ` + keys + ` $IPAM}`
}

func (s *ovsMachine) must(verb, conf, id string, env ...string) string {
	s.T.Helper()
	out, err := s.cni(verb, conf, id, "", "", strings.Join(env, ""))
	if err != nil {
		s.T.Fatalf("%s %s: %s", verb, id, out)
	}
	return out
}

// wantError runs an operation that must fail with an error that contains want.
func (s *ovsMachine) wantError(verb, conf, id, want string) {
	s.T.Helper()
	out, err := s.cni(verb, conf, id, "", "", "")
	if err == nil || !strings.Contains(out, want) {
		s.T.Errorf("%s %s (%v):\n%s\nwant:\n%s", verb, id, err, out, want)
	}
}

// state returns the state of the machine and of the switch.
func (s *ovsMachine) state() string { return s.withoutSwitch() + s.sw.State() }

// withoutSwitch returns the state of the machine.
func (s *ovsMachine) withoutSwitch() string {
	return kerneltest.Mask(s.machine.state(), kerneltest.Carrier, switchWorker)
}

// switchWorker matches what a kernel worker changes at any time, and the kernel's VXLAN device, which gets its link-local
// address at any time.
var switchWorker = regexp.MustCompile(`(?m)^.* vxlan_sys_.*\n|<[^>]*>| qdisc no(op|queue)| tentative`)

// wantState checks that the state is the given one. It waits, because the kernel removes a namespace and its links
// asynchronously.
func (s *ovsMachine) wantState(before string) {
	s.T.Helper()
	kerneltest.Eventually(s.T, func() error {
		if d := kerneltest.Diff(before, s.state()); d != "" {
			return errors.New("left behind:\n" + d)
		}
		return nil
	})
}

// port returns the name of a container's first port on the switch.
func (s *ovsMachine) port(id string) string {
	s.T.Helper()
	name := s.sw.Ctl("--bare", "--columns=name", "find", "port", "external_ids:fairlead-container="+id)
	return strings.TrimSpace(name)
}

// canReach reports whether a ping from a container to an address succeeds.
func (s *ovsMachine) canReach(id, addr string) bool {
	return exec.Command("nsenter", "--net="+s.Netns[id], "--", "ping", "-c", "1", "-W", "1", addr).Run() == nil
}

// wantTCP serves TCP in one container and connects from another. It fails if a checksum is left for hardware offload
// and never computed.
func (s *ovsMachine) wantTCP(server, addr, from string) {
	s.T.Helper()
	cmd := exec.Command("nsenter", "--net="+s.Netns[server], "--", "answer", "tcp", addr)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.T.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 16)); err != nil {
		s.T.Fatal(err)
	}
	if got := kerneltest.In(s.T, s.Netns[from], "dial", "tcp", addr); !strings.HasPrefix(got, "hello ") {
		s.T.Errorf("the answer of %s: %q", addr, got)
	}
}

// TestOVS checks that the plugin creates the bridge, that containers reach each other through it, and that VLANs
// separate them.
func TestOVS(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	plain, v10 := s.conf("n", ""), s.conf("n", `"vlan": 10,`)
	s.must("add", plain, "a")
	before := s.state()
	out := s.must("add", plain, "b", "CNI_ARGS=IgnoreUnknown=1;OvnPort=lsp-b")
	if !strings.Contains(out, `"name":"ovs0"`) || !strings.Contains(out, `"sandbox":"`+s.Netns["b"]+`"`) {
		t.Errorf("result: %s", out)
	}
	mac := strings.Fields(kerneltest.Run(t, "ip", "-br", "link", "show", "ovs0"))[2]
	if !strings.Contains(out, `"mac":"`+mac+`"`) {
		t.Errorf("the bridge's address is %s, result: %s", mac, out)
	}
	s.must("check", plain, "a")
	if !s.canReach("a", "10.1.0.3") {
		t.Errorf("a does not reach b:\n%s", s.state())
	}
	s.wantTCP("b", "10.1.0.3:80", "a")
	p := s.port("b")
	for column, want := range map[string]string{
		"external_ids:fairlead-network": "n", "external_ids:fairlead-container": "b", "external_ids:fairlead-interface": "eth0", "external_ids:iface-id": "lsp-b",
	} {
		if got := s.sw.Get("interface", p, column); got != want {
			t.Errorf("%s is %s, want %s", column, got, want)
		}
	}
	s.must("del", plain, "b")
	s.must("del", plain, "b")
	s.wantState(before)
	s.must("add", v10, "b")
	if s.canReach("a", "10.1.0.4") || s.sw.Get("port", s.port("b"), "tag") != "10" {
		t.Error("a reaches b, which is in a VLAN")
	}
	s.must("add", v10, "c")
	if !s.canReach("c", "10.1.0.4") {
		t.Error("c does not reach b in their VLAN")
	}
}

// TestOVSKernelDatapath does the same with the kernel's datapath, which is the switch's default.
func TestOVSKernelDatapath(t *testing.T) {
	t.Parallel()
	kerneltest.Needs(t, "Open vSwitch's datapath")
	s := newOVSMachine(t)
	plain, v10 := s.conf("n", `"vxlanID": 42,`), s.conf("n", `"vlan": 10,`)
	s.must("add", plain, "a")
	before := s.state()
	s.must("add", plain, "b")
	s.must("check", plain, "b")
	if got := s.sw.Get("bridge", "ovs0", "datapath_type"); got != `""` {
		t.Errorf("datapath_type is %s", got)
	}
	s.wantTCP("b", "10.1.0.3:80", "a")
	if f := kerneltest.In(t, s.Netns["b"], "ethtool", "-k", "eth0"); !strings.Contains(f, "tx-checksumming: on") {
		t.Errorf("the kernel's datapath needs no checksums:\n%s", f)
	}
	s.must("del", plain, "b")
	s.wantState(before)
	s.must("add", v10, "b")
	if s.canReach("a", "10.1.0.4") {
		t.Error("a reaches b, which is in a VLAN")
	}
}

// TestOVSTrunk checks that a trunk port carries its VLANs, tagged, and no others.
func TestOVSTrunk(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	s.must("add", s.conf("n", `"trunk": [{"id": 5}, {"minID": 10, "maxID": 12}], "vlan": 7, "mtu": 1400, "ofport_request": 33,`), "a")
	p := s.port("a")
	for _, w := range [][3]string{
		{"port", "trunks", "[5, 10, 11, 12]"}, {"port", "tag", "7"}, {"port", "vlan_mode", "native-untagged"},
		{"interface", "ofport", "33"}, {"interface", "mtu", "1400"},
	} {
		if got := s.sw.Get(w[0], p, w[1]); got != w[2] {
			t.Errorf("%s of %s is %s, want %s", w[1], w[0], got, w[2])
		}
	}
	s.must("add", s.conf("n", `"vlan": 7,`), "b")
	if !s.canReach("a", "10.1.0.3") {
		t.Error("the trunk's native VLAN does not reach b")
	}
}

// TestOVSTunnel checks that the tunnel belongs to the network: it has the network's key and outlives attachments.
func TestOVSTunnel(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	conf := s.conf("n", `"vxlanID": 42, "vxlanRemote": ["192.0.2.7", "192.0.2.8"], "vlan": 9,`)
	s.must("add", conf, "a")
	s.must("check", conf, "a")
	find := func() string { // in no fixed order
		rows := strings.Split(s.sw.Ctl("--bare", "--columns=type,options", "find", "interface", "options:key=42"), "\n\n")
		for i := range rows {
			rows[i] = strings.TrimSpace(rows[i])
		}
		slices.Sort(rows)
		return strings.Join(rows, "\n")
	}
	tunnels := find()
	if strings.Count(tunnels, "vxlan") != 2 || !strings.Contains(tunnels, "key=42 remote_ip=192.0.2.7") {
		t.Errorf("tunnels:\n%s", tunnels)
	}
	if got := s.sw.Ctl("--bare", "--columns=tag,protected", "find", "port", "external_ids:fairlead-network=n", "protected=true"); strings.Count(got, "9\ntrue") != 2 {
		t.Errorf("the tunnels' ports: %s", got)
	}
	s.must("del", conf, "a")
	if find() != tunnels {
		t.Errorf("DEL changed the network's tunnels:\n%s", find())
	}
	// The same network may change its configuration. Another network may not take its tunnel.
	s.must("add", s.conf("n", `"vxlanID": 42, "vxlanRemote": ["192.0.2.7", "192.0.2.8"], "vlan": 8,`), "a")
	before := s.state()
	s.wantError("add", s.conf("m", `"vxlanID": 42, "vxlanRemote": ["192.0.2.7", "192.0.2.8"],`), "b",
		`network "n" has this tunnel with other settings (tag is 8, want []): use another vxlanID or bridge`)
	s.wantState(before)
}

// TestOVSExample runs 40-pci-ovs.conf unchanged. The switch and the DHCP daemon use their default sockets, and the DHCP
// server is another container on the bridge.
func TestOVSExample(t *testing.T) {
	t.Parallel()
	s := newOVSMachine(t)
	server := `{"cniVersion": "1.1.0", "name": "servers", "type": "ovs", "bridge": "ovs0", "socket_file": "` + s.sw.Socket() + `",
		"ipam": {"type": "static", "addresses": [{"address": "10.3.0.1/24"}]}}`
	s.must("add", server, "c")
	leases := filepath.Join(s.Dir, "leases")
	dnsmasq(t, s.Netns["c"], leases)
	socket := filepath.Join(s.sw.Dir, "dhcp.sock")
	dhcptest.Daemon(t, filepath.Join(programs, plugintest.Daemon), socket, t.TempDir())
	s.wrap = []string{"unshare", "-m", "sh", "-c",
		`mount -t tmpfs none /run && mkdir /run/cni /run/openvswitch && ln -s "$0" /run/cni/dhcp.sock && ln -s "$1" /run/openvswitch/db.sock && shift && exec "$@"`,
		socket, s.sw.Socket()}
	raw, err := examples.Networks.ReadFile("40-pci-ovs.conf")
	if err != nil {
		t.Fatal(err)
	}
	before := s.state()
	out := s.must("add", string(raw), "a")
	if !strings.Contains(out, `"cniVersion":"0.3.1"`) || !strings.Contains(out, `"address":"10.3.0.5`) {
		t.Errorf("result: %s", out)
	}
	routes := kerneltest.In(t, s.Netns["a"], "ip", "route")
	for _, want := range []string{"10.3.0.0/16 via 10.3.0.1 dev eth0", "10.4.0.0/16 via 10.3.0.1 dev eth0"} {
		if !strings.Contains(routes, want) {
			t.Errorf("%q is missing in\n%s", want, routes)
		}
	}
	if !s.canReach("a", "10.3.0.1") {
		t.Error("the container does not reach the server")
	}
	if got := s.sw.Ctl("--bare", "--columns=options", "find", "interface", "type=vxlan"); strings.TrimSpace(got) != "key=42 remote_ip=flow" {
		t.Errorf("tunnel: %q", got)
	}
	s.must("del", string(raw), "a")
	d := ""
	for line := range strings.Lines(kerneltest.Diff(before, s.state())) {
		if !tunnelLine.MatchString(line) {
			d += line
		}
	}
	if d != "" {
		t.Errorf("DEL left:\n%s", d)
	}
}

// tunnelLine matches the lines of the network's tunnel, which stays.
var tunnelLine = regexp.MustCompile(`vx42-|vxlan|key=|fairlead-network=pci}|ports |^\+ (external_ids +: \{\})?\n`)

// dnsmasq starts a DHCP server in a container.
func dnsmasq(t *testing.T, netns, leases string) {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+netns, "--", "dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--port=0", "--no-ping",
		"--user=root", "--pid-file=", "--bind-dynamic", "--interface=eth0", "--dhcp-leasefile="+leases, "--dhcp-authoritative",
		"--dhcp-range=10.3.0.50,10.3.0.59,255.255.255.0,1h")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			fmt.Println(log.String())
		}
	})
}
