package chain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

// The host's allowlist has one regular expression per line.
func TestAllowlist(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ list, want string }{
		{"none", ""},
		{"^net\\.core\\.somaxconn$\n\n ^net\\.ipv4\\. \n", ""},
		{"somax\nipv4", ""},
		{"^net.core.somaxconn$\n", `sysctl = {"net.core.somaxconn":"1","net.ipv4.tcp_fin_timeout":"9"}: "net.ipv4.tcp_fin_timeout" is not allowed on this host: `},
		{"\n", "is not allowed on this host"},
		{"^net.(core", "regular expression"},
	} {
		file := filepath.Join(t.TempDir(), "allowlist.conf")
		if tt.list != "none" {
			if err := os.WriteFile(file, []byte(tt.list), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := &tuning{allowlist: file}
		c.Raw = []byte(`{"sysctl": {"net.core.somaxconn": "1", "net.ipv4.tcp_fin_timeout": "9"}}`)
		c.Sysctl = map[string]string{"net.core.somaxconn": "1", "net.ipv4.tcp_fin_timeout": "9"}
		err := c.Ready(t.Context(), &plugin.Attachment{Facts: plugintest.Facts{}})
		if err == nil && tt.want != "" || err != nil && (tt.want == "" || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("list %q: %v, want %q", tt.list, err, tt.want)
		}
	}
}

// TestTuningErrorPlaces verifies that an error is about the place that has the value: the configuration or args.cni.
func TestTuningErrorPlaces(t *testing.T) {
	t.Parallel()
	for conf, want := range map[string]string{
		`{"type": "tuning", "mtu": 1400, "args": {"cni": {"mtu": "big"}}}`:     `args.cni.mtu = "big": `,
		`{"type": "tuning", "mtu": 70000, "args": {"cni": {"promisc": true}}}`: "1:27: mtu = 70000: ",
		`{"type": "tuning", "mtu": 1, "args": {"cni": {"MTU": 70000}}}`:        "args.cni.mtu = 70000: ",
		`{"type": "tuning", "args": {"cni": {"sysctl": {"../x": "1"}}}}`:       "args.cni.sysctl",
		`{"type": "tuning", "args": {"cni": 5}}`:                               "args.cni = 5: ",
	} {
		c := &tuning{}
		if err := json.Unmarshal([]byte(conf), c); err != nil {
			t.Fatal(err)
		}
		c.Raw = []byte(conf)
		if err := c.Validate(&plugin.Attachment{Facts: plugintest.Facts{}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", conf, err, want)
		}
	}
}
