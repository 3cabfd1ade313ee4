package compat

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// inheritance is a list of plugins that uses every kind of object that the reference implementation creates on a host.
const inheritance = `{"cniVersion": "1.0.0", "name": "net", "plugins": [
	{"type": "bridge", "isDefaultGateway": true, "macspoofchk": true, "ipMasq": true, "ipMasqBackend": "$BACKEND",
	 "ipam": {"type": "host-local", "dataDir": "$DIR/ipam", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd01::/64"}]]}},
	{"type": "firewall", "backend": "iptables"},
	{"type": "portmap", "backend": "$BACKEND", "capabilities": {"portMappings": true}},
	{"type": "bandwidth", "ingressRate": 8000000, "ingressBurst": 800000, "egressRate": 8000000, "egressBurst": 800000},
	{"type": "tuning", "mtu": 1400}]}`

const inheritedPorts = `{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "192.0.2.1"}]}`

// TestDelOfReferenceRules checks that our DEL removes the rules and links that the reference created, with every
// backend, and nothing that belongs to other containers.
func TestDelOfReferenceRules(t *testing.T) {
	for _, backend := range []string{"iptables", "nftables", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			h := newSideHost(t, side{})
			if backend == "legacy" {
				h.more = []string{"PATH=" + legacyFirst(t) + ":" + os.Getenv("PATH")}
			}
			h.write(strings.ReplaceAll(inheritance, "$BACKEND", strings.Replace(backend, "legacy", "iptables", 1)))
			for _, name := range []string{"other", "a", "b"} {
				h.container(name)
				h.ip(name, "link set lo up")
			}
			do := func(verb, name string, ours bool) {
				t.Helper()
				h.side = side{ourPlugins: ours}
				ports := strings.ReplaceAll(inheritedPorts, "8080", map[string]string{"other": "8080", "a": "8081", "b": "8082"}[name])
				ports = strings.ReplaceAll(ports, `"hostPort": 53`, map[string]string{"other": `"hostPort": 53`, "a": `"hostPort": 54`, "b": `"hostPort": 55`}[name])
				if _, err := h.call(call{verb: verb, netns: name, capArgs: ports}); err != nil {
					t.Fatalf("%s %s: %v", verb, name, err)
				}
			}
			do("add", "other", false)
			do("add", "b", true) // creates our tables
			before := h.left()
			for _, gone := range []bool{false, true} {
				do("add", "a", false)
				if after := h.left(); after == before {
					t.Fatal("the reference created nothing, so the test has no effect")
				}
				if gone { // DEL must also work if the container's link is gone
					h.ip("a", "link del eth0")
				}
				do("del", "a", true)
				if after := h.left(); after != before {
					t.Errorf("after DEL, with the link deleted before %v:\n%s\nwant\n%s", gone, after, before)
				}
			}
		})
	}
}

// legacyFirst returns a directory in which iptables is iptables-legacy.
func legacyFirst(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables", "iptables-save", "ip6tables-save"} {
		words := strings.SplitN(name, "-", 2)
		legacy := words[0] + "-legacy" + strings.TrimPrefix(name, words[0])
		path, err := exec.LookPath(legacy)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// left returns a host's rules, queues and links, without bridges' addresses.
func (h *host) left() string {
	h.T.Helper()
	var b strings.Builder
	for _, c := range []string{"nft -s list ruleset", "iptables-legacy-save", "ip6tables-legacy-save", "tc qdisc", "ip -br link"} {
		argv := strings.Fields(c)
		err := kerneltest.Inside(h.Netns["host"], func() error {
			out, err := exec.Command(argv[0], argv[1:]...).Output()
			b.Write(out)
			return err
		})
		if err != nil {
			h.T.Fatalf("%s: %v", c, err)
		}
	}
	return regexp.MustCompile(`(?m)^#.*\n| *\[\d+:\d+\]|\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`).ReplaceAllString(b.String(), "")
}
