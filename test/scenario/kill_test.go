package scenario

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestKilledAdd kills a plugin at random points of ADD, twenty times each. DEL frees everything, given only the names.
func TestKilledAdd(t *testing.T) {
	for _, tt := range []struct{ plugin, conf string }{
		{"bridge", `"bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "macspoofchk": true, $IPAM`},
		{"ptp", `"ipMasq": true, $IPAM`},
		{"host-device", `"device": "dev0", $IPAM`},
		{"macvlan", `"master": "dev0", $IPAM`},
		{"fairlead-chain", `"capabilities": {"portMappings": true}, "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80}]},
			"plugins": [{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, $IPAM}, {"type": "portmap", "capabilities": {"portMappings": true}},
			{"type": "bandwidth", "ingressRate": 1000000, "egressRate": 1000000}, {"type": "firewall"}, {"type": "tuning", "mtu": 1400, "sysctl": {"net.core.somaxconn": "77"}}]`},
		{"fairlead-pod", `"confDirs": ["$DIR"], "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"fairlead.io/networks": "second,third"}},
			"plugins": [{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, $IPAM}]`},
		{"tap", `"multiQueue": true, $IPAM`},
		{"portmap", `"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/x"}],
			"ips": [{"address": "10.1.0.2/24", "interface": 1}, {"address": "fd01::2/64", "interface": 1}]},
			"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80}, {"hostPort": 53, "containerPort": 53, "protocol": "udp"}]}`},
	} {
		t.Run(tt.plugin, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "far0")
			kerneltest.Run(t, "ip", "link", "add", "cni0", "type", "bridge")
			conf := strings.ReplaceAll(`{"cniVersion": "1.0.0", "name": "n", "type": "`+tt.plugin+`", `+tt.conf+`}`,
				"$IPAM", `"ipam": {"type": "host-local", "dataDir": "`+m.Dir+`/ipam", "subnet": "10.1.0.0/24"}`)
			conf = strings.ReplaceAll(conf, "$DIR", m.Dir)
			podNetworks(t, m)
			m.plugin(t, "ADD", conf, 0) // once completely, to create shared objects
			m.plugin(t, "DEL", conf, 0)
			duration := m.plugin(t, "ADD", conf, 0)
			m.plugin(t, "DEL", conf, 0)
			before := m.state()
			for killed, try := 0, 0; killed < 20; try++ {
				if try == 400 {
					t.Fatalf("only %d kills hit a running ADD", killed)
				}
				after := rand.N(max(duration, time.Millisecond))
				if took := m.plugin(t, "ADD", conf, after+1); took >= 0 {
					duration = took // on a machine that was busier before, kills would come too late
				} else if killed++; try%2 == 1 && tt.plugin != "portmap" {
					// The next ADD undoes an interrupted one. If the kill came after the last step, the attachment
					// exists.
					duration = m.plugin(t, "ADD", conf, 0)
				}
				m.plugin(t, "DEL", strings.ReplaceAll(conf, "prevResult", "forgotten"), 0)
				if d := kerneltest.Diff(before, m.state()); d != "" {
					t.Fatalf("killed after %v: DEL left\n%s", after, d)
				}
			}
		})
	}
}

// podNetworks writes the configurations of two more networks of a pod.
func podNetworks(t *testing.T, m *machine) {
	t.Helper()
	for name, conf := range map[string]string{
		"second": `{"cniVersion": "1.0.0", "name": "second", "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "subnet": "10.2.0.0/24"}}, {"type": "tuning", "mtu": 1400}]}`,
		"third":  `{"cniVersion": "0.4.0", "name": "third", "type": "macvlan", "master": "dev0", "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "subnet": "10.3.0.0/24"}}`,
	} {
		if err := os.WriteFile(filepath.Join(m.Dir, name+".json"), []byte(strings.ReplaceAll(conf, "$DIR", m.Dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledDel kills a chain of plugins, and a pod's networks, at random points of DEL. The next DEL removes the rest.
func TestKilledDel(t *testing.T) {
	for name, conf := range map[string]string{
		"fairlead-chain": `"plugins": [{"type": "bridge", "isDefaultGateway": true, "ipMasq": true, $IPAM},
			{"type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80}]}},
			{"type": "bandwidth", "ingressRate": 1000000, "egressRate": 1000000}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "77"}}]`,
		"fairlead-pod": `"confDirs": ["$DIR"], "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"fairlead.io/networks": "second,third"}},
			"plugins": [{"type": "ptp", "ipMasq": true, $IPAM}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			kerneltest.Run(t, "ip", "link", "add", "dev0", "type", "veth", "peer", "name", "far0")
			podNetworks(t, m)
			killDel(t, m, strings.NewReplacer("$DIR", m.Dir, "$IPAM", `"ipam": {"type": "host-local", "dataDir": "`+m.Dir+`/ipam", "subnet": "10.1.0.0/24"}`).
				Replace(`{"cniVersion": "1.0.0", "name": "n", "type": "`+name+`", `+conf+`}`))
		})
	}
}

func killDel(t *testing.T, m *machine, conf string) {
	t.Helper()
	m.plugin(t, "ADD", conf, 0)
	duration := m.plugin(t, "DEL", conf, 0)
	before := m.state()
	for killed, try := 0, 0; killed < 20; try++ {
		if try == 200 {
			t.Fatalf("only %d kills hit a running DEL", killed)
		}
		m.plugin(t, "ADD", conf, 0)
		after := rand.N(max(duration, time.Millisecond))
		if took := m.plugin(t, "DEL", conf, after+1); took >= 0 {
			duration = took
		} else {
			killed++
		}
		m.plugin(t, "DEL", conf, 0)
		if d := kerneltest.Diff(before, m.state()); d != "" {
			t.Fatalf("killed after %v: DEL left\n%s", after, d)
		}
	}
}

// plugin runs a single plugin. It returns how long the plugin took, or -1 if it was killed before it ended.
func (m *machine) plugin(t *testing.T, verb, conf string, kill time.Duration) time.Duration {
	var head struct{ Type string }
	if err := json.Unmarshal([]byte(conf), &head); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(head.Type)
	cmd.Stdin = strings.NewReader(conf)
	var out strings.Builder
	cmd.Stdout = &out
	cmd.Env = m.Env("CNI_PATH="+programs, "CNI_COMMAND="+verb, "CNI_CONTAINERID=a", "CNI_NETNS="+m.Netns["a"], "CNI_IFNAME=eth0")
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if kill > 0 {
		time.Sleep(kill)
		_ = cmd.Process.Kill()
	}
	err := cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1
	}
	if err != nil && !strings.Contains(out.String(), "is already attached to network n as eth0") {
		t.Fatalf("%s: %v\n%s", verb, err, out.String())
	}
	return time.Since(start)
}
