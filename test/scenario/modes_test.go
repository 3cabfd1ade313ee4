package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// TestFusedScenarios runs the scenarios of lists, unchanged, with each list in one process.
func TestFusedScenarios(t *testing.T) { testscript.Run(t, params("fused", scenariosWithLists(t)...)) }

// TestInProcessScenarios runs lists within the runtime's process. The code is the same, so the scenarios with the
// largest lists are enough.
func TestInProcessScenarios(t *testing.T) {
	testscript.Run(t, params("in-process", "testdata/main-job.txtar", "testdata/gc.txtar", "testdata/flannel.txtar", "testdata/bandwidth.txtar", "testdata/restart.txtar", "testdata/pod-networks.txtar"))
}

// scenariosWithLists returns the scenarios that use network lists.
func scenariosWithLists(t *testing.T) (out []string) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), `"plugins"`) && !strings.Contains(string(raw), delegate.PodType) {
			out = append(out, f)
		}
	}
	return out
}

const (
	fullList = `{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, "macspoofchk": true, $IPAM},
	  {"type": "portmap", "capabilities": {"portMappings": true}},
	  {"type": "bandwidth", "ingressRate": 1000000, "egressRate": 2000000},
	  {"type": "firewall", "ingressPolicy": "same-bridge"},
	  {"type": "tuning", "sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1"}, "mtu": 1400}`
	ports = `CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80},{"hostPort":53,"containerPort":53,"protocol":"udp"}]}`
)

// modes returns the ways to run a list: plugin by plugin, fused, and within the runtime.
func modes(m *machine) map[string]*machine {
	out := map[string]*machine{}
	for _, mode := range []string{"", "fused", "in-process"} {
		v := *m
		v.wrap = []string{"env", "LIST_MODE=" + mode}
		out[mode] = &v
	}
	return out
}

// TestListModesAgree checks that a list gives the same result, creates the same objects and is removed completely in
// every mode and every CNI version.
func TestListModesAgree(t *testing.T) {
	lists := map[string]string{
		"full":               fullList,
		"short":              `{"type": "bridge", "isGateway": true, $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}`,
		"ptp":                `{"type": "ptp", "ipMasq": true, $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "bandwidth", "egressRate": 1000000}, {"type": "sbr"}`,
		"device":             `{"type": "host-device", "device": "dev0", $IPAM}, {"type": "tuning", "mtu": 1300, "mac": "02:00:00:00:00:77"}`,
		"two tuning plugins": `{"type": "bridge", $IPAM}, {"type": "tuning", "mtu": 1300}, {"type": "tuning", "promisc": true}`,
		"with lo":            `{"type": "loopback"}, {"type": "bridge", $IPAM}, {"type": "tuning", "mtu": 1300}`,
		"layer 2":            `{"type": "bridge"}, {"type": "tuning", "allmulti": true}`,
		"iptables command":   `{"type": "bridge", "ipMasq": true, "ipMasqBackend": "iptables", $IPAM}, {"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}, {"type": "firewall", "backend": "iptables"}`,
		"conditions":         `{"type": "bridge", "isGateway": true, $IPAM}, {"type": "portmap", "conditionsV4": ["ip", "saddr", "!=", "192.0.2.7"], "capabilities": {"portMappings": true}}, {"type": "firewall"}`,
	}
	for name, plugins := range lists {
		versions := []string{"1.1.0"}
		switch name {
		case "short":
			versions = cni.Versions()
		case "with lo":
			versions = []string{"0.3.1"} // CHECK (since 0.4.0) does not find lo in the bridge plugin's result
		}
		for _, v := range versions {
			t.Run(name+" "+v, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t)
				kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "far0")
				wantSameInAllModes(t, m, `{"cniVersion": "`+v+`", "name": "n", "plugins": [`+plugins+`]}`, v)
			})
		}
	}
}

// TestExamplesInAllModes does the same with the examples that have no prerequisites on the machine.
func TestExamplesInAllModes(t *testing.T) {
	for _, name := range []string{"10-my-network.conflist", "20-dbnet.conflist", "21-dbnet-0.3.1.conf", "50-flannel.conflist", "60-minicni.conf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(filepath.Join("../../examples", name))
			if err != nil {
				t.Fatal(err)
			}
			m := newMachine(t)
			lease := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
			if err := os.WriteFile(filepath.Join(m.Dir, "subnet.env"), []byte(lease), 0o600); err != nil {
				t.Fatal(err)
			}
			version := regexp.MustCompile(`"cniVersion": "([0-9.]+)"`).FindStringSubmatch(string(raw))
			conf := regexp.MustCompile(`"bridge": "\w+"`).ReplaceAllString(string(raw), `"bridge": "cni0"`)
			wantSameInAllModes(t, m, strings.Replace(conf, `"type": "flannel",`, `"type": "flannel", "subnetFile": "$WORK/subnet.env",`, 1), version[1])
		})
	}
}

func wantSameInAllModes(t *testing.T, m *machine, conf, version string) {
	byMode := modes(m)
	run := func(mode, verb string) string {
		out, err := byMode[mode].cni(verb, conf, "a", "", "", ports)
		if err != nil {
			t.Fatalf("%q: %s: %s", mode, verb, out)
		}
		return out
	}
	run("", "add") // create shared objects
	run("", "del")
	before := m.state()
	var wantResult, wantState string
	for _, mode := range []string{"", "fused", "in-process"} {
		for _, d := range []string{"ipam", "lib", "run", "cache"} { // start again with the first address
			if err := os.RemoveAll(filepath.Join(m.Dir, d)); err != nil {
				t.Fatal(err)
			}
		}
		result := run(mode, "add")
		state := removeLinkNumbers(m.state())
		if mode == "" {
			wantResult, wantState = result, state
		}
		if result != wantResult {
			t.Errorf("%q: result\n%s, want\n%s", mode, result, wantResult)
		}
		if d := kerneltest.Diff(wantState, state); d != "" {
			t.Errorf("%q: state\n%s", mode, d)
		}
		if cni.AtLeast(version, "0.4.0") {
			run("", "check") // in the first mode, whichever mode ran ADD
			run(mode, "check")
		}
		run(mode, "del")
		run(mode, "del")
		if d := kerneltest.Diff(before, m.state()); d != "" {
			t.Errorf("%q: DEL left\n%s", mode, d)
		}
	}
	for _, pair := range [][2]string{{"", "fused"}, {"fused", ""}} {
		run(pair[0], "add")
		run(pair[1], "del")
		if d := kerneltest.Diff(before, m.state()); d != "" {
			t.Errorf("ADD %q, DEL %q left\n%s", pair[0], pair[1], d)
		}
	}
}

// removeLinkNumbers removes from a state what differs each time a link is created: numbers, and the records with them.
func removeLinkNumbers(s string) string {
	s = kerneltest.Mask(s, kerneltest.Numbers, kerneltest.Timers, kerneltest.Carrier, kerneltest.IPv6State, kerneltest.Contents)
	return regexp.MustCompile(`/cache/\S*`).ReplaceAllString(s, "")
}

// TestFusedCheck checks that CHECK of a fused list finds damage and names the plugin.
func TestFusedCheck(t *testing.T) {
	for damage, want := range map[string]string{
		"in ip addr flush dev eth0":                          "plugins[0] bridge: ",
		"in ip link set eth0 mtu 1450":                       "plugins[4] tuning: ",
		"in sysctl -qw net.core.somaxconn=77":                "plugins[4] tuning: ",
		"nft flush map inet fairlead hostports-any4":         "plugins[1] portmap: ",
		"tc qdisc del dev $VETH root":                        "plugins[2] bandwidth: ",
		"nft flush chain inet fairlead ingress-to":           "plugins[3] firewall: ",
		"find $WORK/ipam/n -name 10.1.* -delete":             "plugins[0] bridge: ipam host-local: ",
		"ip link del $VETH":                                  "plugins[0] bridge: ",
		"nft delete table inet fairlead; nft add table ip x": "plugins[0] bridge: ",
	} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			m := modes(newMachine(t))["fused"]
			conf := `{"cniVersion": "1.0.0", "name": "n", "plugins": [` + fullList + `]}`
			out, err := m.cni("add", conf, "a", "", "", ports)
			if err != nil {
				t.Fatal(out)
			}
			veth := regexp.MustCompile(`veth[0-9a-f]+`).FindString(out)
			for line := range strings.SplitSeq(strings.NewReplacer("$VETH", veth, "$WORK", m.Dir).Replace(damage), "; ") {
				if inside, ok := strings.CutPrefix(line, "in "); ok {
					kerneltest.In(t, m.Netns["a"], strings.Fields(inside)...)
				} else {
					kerneltest.Run(t, strings.Fields(line)...)
				}
			}
			if out, err := m.cni("check", conf, "a", "", "", ports); err == nil || !strings.Contains(out, want) {
				t.Errorf("CHECK: %v %s, want %s", err, out, want)
			}
			if out, err := m.cni("del", conf, "a", "", "", ports); err != nil {
				t.Errorf("DEL: %s", out)
			}
		})
	}
}

// TestFusedFailure checks that the error names the plugin that failed, and that nothing of the plugins before it
// remains: neither planned changes, nor changes already applied because an external process came between.
func TestFusedFailure(t *testing.T) {
	for _, tt := range []struct{ name, plugins, want string }{
		{"invalid", `{"type": "bridge", $IPAM}, {"type": "tuning", "mtu": -1}`, `plugins[1] tuning: mtu = -1: want 0`},
		{"in the kernel", `{"type": "bridge", $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "many"}}, {"type": "firewall"}`,
			`plugins[2] tuning: sysctl -w net.core.somaxconn=many: write many to /proc/sys/net/core/somaxconn: invalid argument`},
		{"first", `{"type": "bridge", "bridge": "dev0", $IPAM}, {"type": "firewall"}`, `plugins[0] bridge: ip link add dev0 `},
		{"external process", `{"type": "bridge", "ipMasq": true, $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "broken"}`, `plugins[2] broken: plugin `},
		{"after an external process", `{"type": "bridge", "ipMasq": true, $IPAM}, {"type": "ref-tuning"}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "many"}}`, `plugins[2] tuning: sysctl -w`},
		{"unknown plugin", `{"type": "bridge", $IPAM}, {"type": "nosuch"}`, `plugins[1] nosuch: failed to find plugin "nosuch" in path`},
		{"no result", `{"type": "portmap"}, {"type": "bridge", $IPAM}`, `plugins[0] portmap: portmap must be called as chained plugin`},
		{"nested", `{"type": "bridge", $IPAM}, {"type": "fairlead-chain", "plugins": [{"type": "tuning"}]}`, `plugins[1].type = "fairlead-chain": a chain cannot contain a chain`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			refTuning := reference.Plugin(t, "tuning")
			m := modes(newMachine(t))["fused"]
			kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "far0")
			good := `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", "ipMasq": true, $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`
			for _, verb := range []string{"add", "del"} { // create shared objects
				if out, err := m.cni(verb, good, "a", "", "", ports); err != nil {
					t.Fatal(out)
				}
			}
			before := m.state()
			path := filepath.Join(t.TempDir(), "bin")
			link(t, path, map[string]string{"ref-tuning": refTuning, "broken": "/bin/false"})
			out, err := m.cni("add", `{"cniVersion": "1.0.0", "name": "n", "plugins": [`+tt.plugins+`]}`, "a", "", "",
				"CNI_PATH="+programs+":"+path, ports)
			if err == nil || !strings.Contains(out, tt.want) {
				t.Errorf("ADD: %v\n%s\nwant %s", err, out, tt.want)
			}
			if d := kerneltest.Diff(before, m.state()); d != "" {
				t.Errorf("left behind:\n%s", d)
			}
		})
	}
}

// link fills a directory with symbolic links to programs.
func link(t *testing.T, dir string, programs map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range programs {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestThirdPartyPluginInList checks that a third-party plugin in the middle of a list runs as a process and sees the
// objects that earlier plugins created. It has its own name or the name of one of our plugins.
func TestThirdPartyPluginInList(t *testing.T) {
	t.Parallel()
	refTuning := reference.Plugin(t, "tuning")
	m := newMachine(t)
	refDir := filepath.Join(t.TempDir(), "reference")
	link(t, refDir, map[string]string{"tuning": refTuning, "ref-tuning": refTuning})
	for _, typ := range []string{"ref-tuning", "tuning"} {
		conf := `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge", "isGateway": true, $IPAM},
		  {"type": "` + typ + `", "mtu": 1333, "mac": "02:00:00:00:00:99", "dataDir": "` + m.Dir + `/tuning"},
		  {"type": "portmap", "capabilities": {"portMappings": true}}, {"type": "bandwidth", "egressRate": 1000000}]}`
		for mode, v := range modes(m) {
			run := func(verb string) string {
				out, err := v.cni(verb, conf, "a", "", "", ports, "CNI_PATH="+refDir+":"+programs)
				if err != nil {
					t.Fatalf("%s %q: %s: %s", typ, mode, verb, out)
				}
				return out
			}
			before := ""
			for range 2 { // the first run creates shared objects
				before = m.state()
				if out := run("add"); !strings.Contains(out, `"mac":"02:00:00:00:00:99"`) {
					t.Errorf("%s %q: %s", typ, mode, out)
				}
				if _, err := os.Stat(m.Dir + "/tuning/a_eth0.json"); err != nil {
					t.Errorf("%s %q: the reference plugin did not run: %v", typ, mode, err)
				}
				if s := kerneltest.In(t, m.Netns["a"], "ip", "link", "show", "eth0"); !strings.Contains(s, "mtu 1333") {
					t.Errorf("%s %q: %s", typ, mode, s)
				}
				run("check")
				run("del")
			}
			if d := kerneltest.Diff(before, m.state()); d != "" {
				t.Errorf("%s %q: left behind\n%s", typ, mode, d)
			}
		}
	}
}
