package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBridgeNames checks that networks have bridges of their own, also if their names are long and begin alike.
func TestBridgeNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, network := range []string{"a", "my-net", "elevenbytes", "twelve-bytes", "my-network-1", "my-network-2", strings.Repeat("long", 60)} {
		name := bridgeName(network)
		if len(name) > 15 || !strings.HasPrefix(name, "cni-") || seen[name] != "" {
			t.Errorf("%s: %q, which network %q has", network, name, seen[name])
		}
		seen[name] = network
	}
	if got := bridgeName("my-net"); got != "cni-my-net" {
		t.Errorf("a short name: %s", got)
	}
}

// TestOverlap checks that a network cannot have addresses of another one, also of one inside a fused list.
func TestOverlap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, fused := range []bool{false, true} {
		f, err := File(dir, Options{Name: "one", Subnets: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16"), netip.MustParsePrefix("fd00:20::/64")}, Fused: fused})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.Path)), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		for subnets, want := range map[string]string{
			"10.20.7.0/24": "network one has addresses of 10.20.7.0/24", "10.0.0.0/8": "network one", "fd00::/16": "network one", "10.21.0.0/16": "", "10.21.0.0/16 fd00:20::/64": "network one",
		} {
			o := Options{Name: "two"}
			for s := range strings.FieldsSeq(subnets) {
				o.Subnets = append(o.Subnets, netip.MustParsePrefix(s))
			}
			if _, err := File(dir, o); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, fused %v: %v, want %q", subnets, fused, err, want)
			}
		}
	}
}

// TestSubnets checks that a network is written only if plugin host-local accepts its subnets, with one default route per
// family.
func TestSubnets(t *testing.T) {
	t.Parallel()
	for subnets, want := range map[string]string{
		"10.20.0.0/16 10.20.1.0/24":              "overlaps with",
		"10.20.0.0/16 10.20.0.0/16":              "overlaps with",
		"10.20.0.0/31":                           "too small",
		"::ffff:10.20.0.0/112":                   "IPv4 notation",
		"fd00::/127":                             "too small",
		"10.20.0.0/30 10.21.0.0/24 fd00:20::/64": "",
		"10.20.0.7/16":                           "",
	} {
		o := Options{Name: "one"}
		for s := range strings.FieldsSeq(subnets) {
			o.Subnets = append(o.Subnets, netip.MustParsePrefix(s))
		}
		f, err := File(t.TempDir(), o)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", subnets, err, want)
		}
		if err == nil && strings.Count(string(f.Data), `"dst": "0.0.0.0/0"`) != 1 {
			t.Errorf("%s:\n%s", subnets, f.Data)
		}
	}
}
