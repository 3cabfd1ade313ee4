package security

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPathsInNames covers CVE-2021-20206: a type with a path outside the plugin directories ran any program. It also
// covers the other names that become file names: container IDs, networks and interfaces.
func TestPathsInNames(t *testing.T) {
	good := `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", $IPAM}`
	for name, tt := range map[string]struct{ plugin, conf, env, want string }{
		"container ID with a path":  {conf: good, env: "CNI_CONTAINERID=../../etc/x", want: `invalid characters in containerID`},
		"container ID with a slash": {conf: good, env: "CNI_CONTAINERID=a/b", want: `invalid characters in containerID`},
		"container ID is ..":        {conf: good, env: "CNI_CONTAINERID=..", want: `invalid characters in containerID`},
		"container ID with newline": {conf: good, env: "CNI_CONTAINERID=a\nb", want: `invalid characters in containerID`},
		"network with a path":       {conf: strings.Replace(good, `"n"`, `"../../n"`, 1), want: `invalid characters found in network name`},
		"network is ..":             {conf: strings.Replace(good, `"n"`, `".."`, 1), want: `invalid characters found in network name`},
		"interface with a path":     {conf: good, env: "CNI_IFNAME=../../all", want: `contains / or :`},
		"interface is ..":           {conf: good, env: "CNI_IFNAME=..", want: `interface name is . or ..`},
		"interface with a pattern":  {conf: good, env: "CNI_IFNAME=eth%d", want: `interface name`},
		"interface is all":          {conf: good, env: "CNI_IFNAME=all", want: `all`},
		"interface is default":      {conf: good, env: "CNI_IFNAME=default", want: `default`},
		"bridge with a path":        {conf: strings.Replace(good, "$IPAM", `"bridge": "../x", $IPAM`, 1), want: `bridge = "../x"`},
		"bridge with a pattern":     {conf: strings.Replace(good, "$IPAM", `"bridge": "br%d", $IPAM`, 1), want: `bridge = "br%d"`},
		"ipam with a path":          {conf: strings.Replace(good, "$IPAM", `"ipam": {"type": "../evil"}`, 1), want: `invalid plugin type "../evil"`},
		"ipam is ..":                {conf: strings.Replace(good, "$IPAM", `"ipam": {"type": ".."}`, 1), want: `invalid plugin type ".."`},
		"delegate with a path":      {plugin: "flannel", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "flannel", "subnetFile": "$WORK/subnet.env", "dataDir": "$WORK/flannel", "delegate": {"type": "../evil"}}`, want: `invalid plugin type "../evil"`},
		"chained type with a path":  {plugin: "fairlead-chain", conf: `{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-chain", "plugins": [{"type": "../evil"}]}`, want: `invalid plugin type "../evil"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "a")
			before := m.dump()
			// "../evil" is a program that must not run.
			evil := "#!/bin/sh\ntouch " + m.Dir + "/ran\n"
			if err := os.WriteFile(filepath.Join(m.Dir, "evil"), []byte(evil), 0o755); err != nil {
				t.Fatal(err)
			}
			lease := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
			if err := os.WriteFile(filepath.Join(m.Dir, "subnet.env"), []byte(lease), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.plugin == "" {
				tt.plugin = "bridge"
			}
			out, err := m.run("ADD", tt.plugin, "a", tt.conf, tt.env)
			if err == nil || !strings.Contains(strings.ReplaceAll(out, `\"`, `"`), tt.want) {
				t.Errorf("ADD printed %s, want %s", out, tt.want)
			}
			_, _ = m.run("DEL", tt.plugin, "a", tt.conf, tt.env)
			for _, f := range m.files() {
				if strings.HasSuffix(f, "/ran") || strings.HasSuffix(f, "etc/x") {
					t.Errorf("%s was created", f)
				}
			}
			if after := m.dump(); after != before {
				t.Errorf("the state is\n%s\nwant\n%s", after, before)
			}
		})
	}
}
