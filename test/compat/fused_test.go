package compat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// TestFused checks that a fused list under the reference runtime equals the original list: it has the same result and
// namespaces, and either form removes it. One case includes a reference plugin.
func TestFused(t *testing.T) {
	portmap, tuning := `{"type": "portmap", "capabilities": {"portMappings": true}}`, `{"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}`
	shaped := `{"type": "bandwidth", "ingressRate": 1000000, "ingressBurst": 1000000}`
	type list struct {
		name, version string
		members       []string
	}
	lists := []list{
		{"all", "1.1.0", []string{bridgeWith(`"isDefaultGateway": true, "ipMasq": true, `), portmap, shaped, `{"type": "firewall"}`, tuning}},
		{"a reference plugin in the middle", "1.0.0", []string{bridgeWith(`"isGateway": true, `), `{"type": "reference-tuning", "mtu": 1300}`, portmap}},
	}
	for _, v := range cni.Versions() {
		lists = append(lists, list{"short", v, []string{bridgeWith(`"isGateway": true, `), portmap, tuning}})
	}
	for _, l := range lists {
		t.Run(l.name+" "+l.version, func(t *testing.T) {
			t.Parallel()
			h := newSideHost(t, side{ourRuntime: false, ourPlugins: true})
			h.plugins = withReferenceTuning(t)
			h.container("a")
			ports := `{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}`
			run := func(verb string, fused bool) string {
				h.write(listOf(t, l.version, l.members, fused))
				out, err := h.call(call{verb: verb, netns: "a", capArgs: ports})
				if err != nil {
					t.Fatalf("%s, fused %v: %v\n%s", verb, fused, err, out)
				}
				return out
			}
			var results, hosts, containers [3]string
			for i, fused := range []bool{false, false, true} { // the first run creates shared objects
				if err := os.RemoveAll(filepath.Join(h.Dir, "ipam")); err != nil {
					t.Fatal(err)
				}
				results[i] = run("add", fused)
				hosts[i], containers[i] = h.snapshot("host"), h.snapshot("a")
				if cni.AtLeast(l.version, "0.4.0") {
					run("check", true)
					run("check", false)
				}
				run("del", i != 2) // remove it with the other form of the list
				if left := h.snapshot("a"); containsLink(left, "eth0") {
					t.Errorf("left in the container:\n%s", left)
				}
			}
			for what, got := range map[string][3]string{"result": results, "host": hosts, "container": containers} {
				if got[1] != got[2] {
					t.Errorf("%s fused:\n%s\nnot fused:\n%s", what, got[2], got[1])
				}
			}
			if cni.AtLeast(l.version, "1.1.0") {
				run("status", true)
				run("gc", true)
			}
		})
	}
}

// listOf returns a list of the plugins, fused to one or unchanged.
func listOf(t *testing.T, version string, members []string, fused bool) string {
	t.Helper()
	var raw [][]byte
	for _, m := range members {
		raw = append(raw, []byte(m))
	}
	if fused {
		chain, err := delegate.Fuse(raw)
		if err != nil {
			t.Fatal(err)
		}
		raw = [][]byte{chain}
	}
	plugins := make([]json.RawMessage, len(raw))
	for i := range raw {
		plugins[i] = raw[i]
	}
	out, err := json.Marshal(map[string]any{"cniVersion": version, "name": "net", "plugins": plugins})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// withReferenceTuning returns our plugins' directory with the reference plugin tuning added as "reference-tuning".
func withReferenceTuning(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ours, err := os.ReadDir(os.Getenv(oursVariable))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ours {
		if err := os.Symlink(filepath.Join(os.Getenv(oursVariable), p.Name()), filepath.Join(dir, p.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(reference.Plugin(t, "tuning"), filepath.Join(dir, "reference-tuning")); err != nil {
		t.Fatal(err)
	}
	return dir
}
