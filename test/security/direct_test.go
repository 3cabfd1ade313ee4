package security

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/enforce/enforcetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestDirectInterfaces checks what ADR 24 says about macvlan and ipvlan: which hooks see packets between two containers of a
// host, what rules in a container's own namespace are worth, and that the agent knows such interfaces.
func TestDirectInterfaces(t *testing.T) {
	for name, c := range map[string]struct {
		plugin string
		parent bool // its hook sees packets between two containers
		fused  bool
	}{"macvlan": {"macvlan", true, false}, "macvlan fused": {"macvlan", true, true}, "ipvlan": {"ipvlan", false, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kerneltest.Needs(t, c.plugin)
			m := newMachine(t, "evil", "db")
			m.fused = c.fused
			kerneltest.Run(t, "ip", "link", "add", "dev0", "address", "02:00:00:00:00:05", "type", "veth", "peer", "name", "far0")
			kerneltest.Run(t, "ip", "link", "set", "dev0", "up")
			kerneltest.Run(t, "ip", "link", "set", "far0", "up")
			enforcetest.Start(t, local.Open(filepath.Join(m.Dir, "lib"), filepath.Join(m.Dir, "run")), "policy: all\nfor: '*'\nin: []\n")
			evil, db := m.attachPoliced("evil", c.plugin, `"master": "dev0"`), m.attachPoliced("db", c.plugin, `"master": "dev0"`)
			if got := m.direct("db"); got != c.plugin {
				t.Errorf("the agent takes the interface for one of %q", got)
			}
			kerneltest.Run(t, "nft", "add table inet probe; add chain inet probe f { type filter hook forward priority -200; }; add rule inet probe f meta length > 0 counter;"+
				"add table netdev probe; add chain netdev probe i { type filter hook ingress device dev0 priority 0; }; add rule netdev probe i ip protocol icmp counter")
			ping := func() bool {
				return kerneltest.Inside(m.Netns["evil"], func() error { return exec.Command("ping", "-c1", "-W1", db.v4).Run() }) == nil
			}
			if !ping() {
				t.Fatal("the host drops packets between the containers: update ADR 24")
			}
			out := kerneltest.Run(t, "nft", "list", "ruleset")
			if strings.Contains(out, "ip protocol icmp counter packets 0 ") == c.parent || !strings.Contains(out, "meta length > 0 counter packets 0 ") {
				t.Errorf("the parent's hook sees packets between containers: want %v; the forward hook: want false\n%s", c.parent, out)
			}

			// Rules in the container's own namespace.
			in := func(container, script string) { kerneltest.In(t, m.Netns[container], "nft", script) }
			in("db", "add table inet own; add chain inet own i { type filter hook input priority 0; }; add rule inet own i iifname eth0 ip protocol icmp drop")
			if ping() {
				t.Error("rules in the container's namespace do not hold")
			}
			in("db", "flush ruleset")
			if !ping() {
				t.Error("root in the container cannot flush its rules: update ADR 24")
			}
			in("evil", "add table inet own; add chain inet own o { type filter hook output priority 0; policy drop; }")
			for _, script := range counters(ipHooks(), 1) {
				in("db", script)
			}
			m.send("evil", ethernet(mac(t, db.mac), mac(t, evil.mac), unix.ETH_P_IP, ipv4(evil.v4, db.v4, 17, udp(1, 53), packetSize(0))))
			kerneltest.Until(t, func() bool { return counted(kerneltest.In(t, m.Netns["db"], "nft", "list", "ruleset"))[packetSize(0)] })
		})
	}
}

// direct returns the plugin that the agent knows for a container whose packets the host does not forward.
func (m *machine) direct(container string) string {
	m.T.Helper()
	files, _ := filepath.Glob(filepath.Join(m.Dir, "lib", "*", "*", container+":eth0.json")) // the pattern is valid
	more, _ := filepath.Glob(filepath.Join(m.Dir, "lib", "*", "*", "*", container+":eth0.json"))
	var e struct{ Direct string }
	for _, path := range append(files, more...) {
		raw, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(raw, &e) != nil {
			m.T.Error(fmt.Errorf("%s: %w", path, err))
		}
	}
	return e.Direct
}
