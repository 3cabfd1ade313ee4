package cluster

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"10.244.3.0/26", "fd00:1::/122"} {
		block := netip.MustParsePrefix(p)
		network, got, err := ParseBlockKey(BlockKey("n", block))
		if network != "n" || got != block || err != nil {
			t.Errorf("%s became %s %s: %v", p, network, got, err)
		}
		ip := block.Addr().Next()
		network, back, err := ParseAddressKey(AddressKey("n", ip))
		if network != "n" || back != ip || err != nil {
			t.Errorf("%s became %s %s: %v", ip, network, back, err)
		}
	}
	for _, bad := range []string{"blocks/n/10.0.0.1-26", "blocks/n", "blocks//10.0.0.0-26", "blocks/n/x-1", "blocks/../10.0.0.0-26", "blocks/n/fd00:0::-64", "blocks/n/FD00::-64", "blocks/n\n/10.0.0.0-26"} {
		if _, _, err := ParseBlockKey(bad); err == nil {
			t.Errorf("%s is taken for a block's key", bad)
		}
	}
	for _, bad := range []string{"addresses/../10.0.0.1", "addresses/n/fd00:0::1", "addresses/n/fe80::1%eth0", "addresses/n/10.0.0.1/x", "addresses//10.0.0.1"} {
		if _, _, err := ParseAddressKey(bad); err == nil {
			t.Errorf("%s is taken for an address's key", bad)
		}
	}
}

func network(t *testing.T, doc string) *Network {
	t.Helper()
	n := &Network{Name: "n"}
	if err := json.Unmarshal([]byte(doc), n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestValidate checks that each error names the key, the value and what is allowed.
func TestValidate(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`{"subnets": [{"cidr": "10.0.0.0/16"}, {"cidr": "fd00::/64", "block": 120, "exclude": ["fd00::1-fd00::9"]}], "backends": [{"type": "vxlan"}], "mtu": 1400}`: "",
		`{}`:                                     "subnets is empty",
		`{"subnets": [{}]}`:                      "subnets[0].cidr is missing",
		`{"subnets": [{"cidr": "10.0.0.1/16"}]}`: "want its first address, 10.0.0.0/16",
		`{"subnets": [{"cidr": "10.0.0.0/30"}, {"cidr": "fd00::/126", "assign": "cluster"}]}`:                                                                                   "",
		`{"subnets": [{"cidr": "10.0.0.0/31"}]}`:                                                                                                                                "subnets[0].cidr is 10.0.0.0/31, which has too few addresses: want a prefix length of at most 30",
		`{"subnets": [{"cidr": "10.0.0.0/32", "assign": "cluster"}]}`:                                                                                                           "want a prefix length of at most 30",
		`{"subnets": [{"cidr": "fd00::/127"}]}`:                                                                                                                                 "want a prefix length of at most 126",
		`{"subnets": [{"cidr": "fd00::/128", "assign": "cluster"}]}`:                                                                                                            "want a prefix length of at most 126",
		`{"subnets": [{"cidr": "10.0.0.0/16", "block": 8}]}`:                                                                                                                    "subnets[0].block is 8: want 16 to 30",
		`{"subnets": [{"cidr": "10.0.0.0/16", "assign": "x"}]}`:                                                                                                                 `assign is "x"`,
		`{"subnets": [{"cidr": "10.0.0.0/16", "exclude": ["10.0.0.9-10.0.0.1"]}]}`:                                                                                              "subnets[0].exclude[0]",
		`{"subnets": [{"cidr": "10.0.0.0/16"}, {"cidr": "10.0.3.0/24"}]}`:                                                                                                       "overlaps with subnets[0]",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "udp"}]}`:                                                                                                 `backends[0].type is "udp"`,
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "vxlan", "port": 70000}]}`:                                                                                "port is 70000",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "vxlan", "when": "now"}]}`:                                                                                `when is "now"`,
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "vxlan", "vni": 16777216}]}`:                                                                              "backends[0].vni is 16777216",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "wireguard", "keepalive": -1}]}`:                                                                          "keepalive is -1: want 0 to 65535 seconds",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "wireguard", "rotate": 65536}]}`:                                                                          "rotate is 65536: want 0 to 65535 hours",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "wireguard", "keepalive": 65535, "rotate": 65535}]}`:                                                      "",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "isolated": true, "backends": [{"type": "bgp"}]}`:                                                                               "an isolated network can only have vxlan",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "isolated": true, "backends": [{"type": "vxlan", "direct": true}]}`:                                                             "backends[0].direct is set: all packets",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "wireguard", "when": "direct"}, {"type": "wireguard"}]}`:                                                  "backends[1] needs the same link as backends[0]",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "vxlan", "when": "direct"}, {"type": "vxlan", "vni": 1, "port": 4789}]}`:                                  "backends[1] needs the same link as backends[0]",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "vxlan", "when": "direct"}, {"type": "vxlan", "port": 8472}, {"type": "vxlan", "vni": 2, "port": 4789}]}`: "",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "bgp", "bgpPeer": [{"address": "192.0.2.1"}, {"asn": 65000}]}]}`:                                          "backends[0].bgpPeer[1].address is invalid IP: want the address of a router",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "bgp", "bgpPeer": [{"address": "fe80::1"}]}]}`:                                                            "backends[0].bgpPeer[0].address is fe80::1",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "isolated": true, "backends": [{"type": "vxlan", "when": "direct", "port": 4789}, {"type": "vxlan", "vni": 2}]}`:                "backends[1] needs the same link as backends[0]",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "peers": ["x"]}`:                                                                                                                "only an isolated network has peers",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "mtu": 1279}`:                                                                                                                   "",
		`{"subnets": [{"cidr": "10.0.0.0/16"}, {"cidr": "fd00::/64"}], "mtu": 1280}`:                                                                                            "",
		`{"subnets": [{"cidr": "10.0.0.0/16"}, {"cidr": "fd00::/64"}], "mtu": 1279}`:                                                                                            "mtu is 1279, and the network has an IPv6 subnet: want at least 1280",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "mtu": 100}`:                                                                                                                    "mtu is 100",
		`{"subnets": [{"cidr": "10.0.0.0/16"}], "vni": 16777216}`:                                                                                                               "vni is 16777216: want 1 to 16777215",
	} {
		err := network(t, doc).Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
	for name, ok := range map[string]bool{"default": true, "a.b-c_9": true, "": false, "-a": false, "a/b": false, "a b": false, strings.Repeat("a", 65): false} {
		if ValidName(name) != ok {
			t.Errorf("the name %q is valid: %v", name, !ok)
		}
	}
	for name, ok := range map[string]bool{"worker-1.example.com": true, strings.Repeat("a", 248): true, strings.Repeat("a", 249): false, "a b": false} {
		if err := CheckNodeName(name); (err == nil) != ok {
			t.Errorf("the name %q of a node is valid: %v", name, !ok)
		}
	}
}

// TestIgnored checks that keys without effect are reported.
func TestIgnored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, doc, want string }{
		{"default", `{"subnets": [{"cidr": "10.0.0.0/16", "exclude": ["10.0.255.0-10.1.0.9"]}], "mtu": 1400, "backends": [{"type": "host-gw", "when": "direct"},
			{"type": "vxlan", "vni": 7, "port": 9, "direct": true}, {"type": "wireguard", "port": 1, "keepalive": 5, "rotate": 1}, {"type": "bgp", "asn": 1, "bgpPeer": [{"address": "192.0.2.1", "asn": 2}]}]}`, ""},
		{"blue", `{"subnets": [{"cidr": "10.0.0.0/16"}], "isolated": true, "vni": 7, "mtu": 1400, "backends": [{"type": "vxlan", "port": 9}]}`, ""},
		{"lan", `{"subnets": [{"cidr": "10.0.0.0/16"}], "nat": true}`, ""},
		{"lan", `{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "vxlan"}]}`, "network lan: backends is set, but hosts do not connect"},
		{"lan", `{"subnets": [{"cidr": "10.0.0.0/16"}], "mtu": 1400}`, "network lan: mtu is set, but hosts do not connect"},
		{"default", `{"subnets": [{"cidr": "10.0.0.0/16"}], "vni": 7}`, "vni is 7, and the network is not isolated: want it as vni of the backend vxlan"},
		{"blue", `{"subnets": [{"cidr": "10.0.0.0/16"}], "isolated": true, "backends": [{"type": "vxlan", "vni": 7}]}`, "backends[0].vni is 7: want it as vni of the isolated network"},
		{"default", `{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "vxlan"}, {"type": "host-gw", "port": 9}]}`, "backends[1].port is set: a backend of the type host-gw does not have it"},
		{"default", `{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "ipip", "bgpPeer": [{"address": "192.0.2.1", "asn": 2}]}]}`, "backends[0].bgpPeer is set"},
		{"default", `{"subnets": [{"cidr": "10.0.0.0/16"}], "backends": [{"type": "bgp", "when": "direct"}, {"type": "vxlan"}, {"type": "bgp", "asn": 65001}]}`, "backends[2] has the type bgp, as backends[0]"},
		{"default", `{"subnets": [{"cidr": "10.0.0.0/16"}, {"cidr": "fd00::/64", "exclude": ["10.0.1.0/24"]}]}`, `subnets[1].exclude[0] is "10.0.1.0/24": want addresses of fd00::/64`},
		{"default", `{"subnets": [{"cidr": "10.0.0.0/16", "exclude": ["10.0.0.1", "10.1.0.0"]}]}`, `subnets[0].exclude[1] is "10.1.0.0": want addresses of 10.0.0.0/16`},
	} {
		n := network(t, c.doc)
		n.Name = c.name
		if err := n.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.doc, err, c.want)
		}
	}
}

// TestSpecial checks that networks and nodes cannot use special-purpose addresses.
func TestSpecial(t *testing.T) {
	t.Parallel()
	for _, cidr := range []string{"0.0.0.0/0", "0.0.0.0/1", "127.0.0.0/16", "169.254.169.0/24", "224.0.0.0/8", "240.0.0.0/4", "::/0", "::ffff:10.0.0.0/104", "fe80::/64", "ff02::/16", "fdfa:1ead:7::/64"} {
		for _, isolated := range []string{"", `"isolated": true, `} {
			if err := network(t, `{`+isolated+`"subnets": [{"cidr": "`+cidr+`"}]}`).Validate(); err == nil || !strings.Contains(err.Error(), "subnets[0].cidr is "+cidr) {
				t.Errorf("a network of %s: %v", cidr, err)
			}
		}
	}
	s := NewSnapshot()
	for i, a := range []string{"0.0.0.0/24", "127.0.0.1/8", "169.254.169.254/16", "224.0.0.1/24", "255.255.255.255/24", "::1/128", "::ffff:192.0.2.1/120", "fe80::1/64", "ff02::1/64", ""} {
		key := NodeKey(string(rune('a' + i)))
		s.Set(key, []byte(`{"id": "1", "addresses": ["`+a+`"]}`))
		if err := s.Problems[key]; err == nil || !strings.Contains(err.Error(), "node "+string(rune('a'+i))) || len(s.Nodes) != 0 {
			t.Errorf("a node at %q: %v", a, err)
		}
	}
	for _, name := range []string{"", "..", "a/b", "a\nb", "\x1b[2J", "a\xffb", strings.Repeat("a", 249), "-"} {
		s.Set(NodeKey(name), []byte(`{"id": "1", "addresses": ["192.0.2.9/24"]}`))
		if s.Problems[NodeKey(name)] == nil || len(s.Nodes) != 0 {
			t.Errorf("a node of the name %q: %v", name, s.Nodes)
		}
	}
	s.Set("networks/default", []byte(`{"isolated": true, "vni": 7, "subnets": [{"cidr": "10.0.0.0/16"}]}`))
	if err := s.Problems["networks/default"]; err == nil || !strings.Contains(err.Error(), "isolated is set") {
		t.Errorf("an isolated default network: %v", err)
	}
}

// TestLongLists checks that a document with very long lists is rejected quickly and with a short message.
func TestLongLists(t *testing.T) {
	t.Parallel()
	many := func(what string) string { return strings.TrimSuffix(strings.Repeat(what+",", 60000), ",") }
	for key, c := range map[string][2]string{
		"networks/subnets":  {`{"subnets": [` + many(`{"cidr":"10.0.0.0/24"}`) + `]}`, "subnets has 60000 entries: want at most 1024"},
		"networks/excludes": {`{"subnets": [{"cidr": "10.0.0.0/8"}, {"cidr":"11.0.0.0/8", "exclude": [` + many(`"11.0.0.1"`) + `]}]}`, "subnets[1].exclude has 60000 entries"},
		"networks/peers":    {`{"isolated": true, "subnets": [{"cidr": "10.0.0.0/8"}], "peers": [` + many(`"x"`) + `]}`, "peers has 60000 entries"},
		"networks/backends": {`{"subnets": [{"cidr": "10.0.0.0/8"}], "backends": [` + many(`{}`) + `]}`, "backends has 60000 entries"},
		"networks/same":     {`{"subnets": [` + strings.Repeat(`{"cidr":"10.0.0.0/24"},`, 1000) + `{"cidr":"11.0.0.0/8"}]}`, "overlaps"},
		"nodes/addresses":   {`{"addresses": [` + many(`"192.0.2.1/24"`) + `]}`, "a second address of its family"},
	} {
		s := NewSnapshot()
		began := time.Now()
		s.Set(key, []byte(c[0]))
		if err := s.Problems[key]; err == nil || !strings.Contains(err.Error(), c[1]) || len(err.Error()) > 200*1024 || len(s.Networks)+len(s.Nodes) != 0 {
			t.Errorf("%s: the problem is %.200v", key, err)
		}
		if took := time.Since(began); took > kerneltest.Slow(10*time.Second) {
			t.Errorf("%s was judged in %v", key, took)
		}
	}
}

// TestUnreadable checks that the last valid version stays in effect while a document is invalid, and no longer.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.0.0.0/16"}]}`, "nodes/a": `{"id": "1", "addresses": ["192.0.2.1/24"]}`,
		"blocks/default/10.0.1.0-26": `{"node": "a", "subnet": "10.0.0.0/16"}`, "addresses/default/10.0.9.9": `{"owner": "ns/p", "fixed": true}`,
	}
	s := NewSnapshot()
	for k, v := range good {
		s.Set(k, []byte(v))
	}
	for k := range good {
		s.Set(k, []byte("{"))
		s.Set(k, []byte("["))
	}
	if n := s.Networks["default"]; n == nil || len(n.Subnets) != 1 || s.Nodes["a"] == nil || len(s.Blocks) != 1 || len(s.Addresses) != 1 || len(s.Problems) != 4 {
		t.Errorf("what is left is %+v", s)
	}
	listed := NewSnapshot() // as after a full sync
	for k := range good {
		listed.Set(k, []byte("{"))
	}
	if listed.Keep(s); listed.Networks["default"] != s.Networks["default"] || listed.Nodes["a"] != s.Nodes["a"] || len(listed.Blocks) != 1 || len(listed.Addresses) != 1 {
		t.Errorf("of the earlier snapshot there is %+v", listed)
	}
	for k := range good {
		s.Set(k, nil)
	}
	if len(s.Networks)+len(s.Nodes)+len(s.Blocks)+len(s.Addresses)+len(s.Problems) != 0 {
		t.Errorf("deleted, and there is %+v", s)
	}
}

// TestEmptyDocument checks that a document that another program emptied is invalid, so that the last valid one stays.
func TestEmptyDocument(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"networks/default":           `{"subnets": [{"cidr": "10.1.0.0/16"}]}`,
		"nodes/a":                    `{"id": "1", "addresses": ["192.0.2.1/24"]}`,
		"blocks/default/10.1.0.0-26": `{"node": "a", "subnet": "10.1.0.0/16"}`,
		"addresses/default/10.1.0.7": `{"owner": "ns/p", "node": "a"}`,
	} {
		for _, bad := range []string{"null", " null\n", "{}"} {
			if bad == "{}" && key == "nodes/a" { // a node has no address as long as its underlay has none
				continue
			}
			s := NewSnapshot()
			s.Set(key, []byte(value))
			before, err := Encode(s.Documents()[key])
			if err != nil {
				t.Fatal(err)
			}
			s.Set(key, []byte(bad))
			now, err := Encode(s.Documents()[key])
			if err != nil || string(now) != string(before) || s.Problems[key] == nil {
				t.Errorf("%s = %s: the document is %s (%v), want %s, and a problem: %v", key, bad, now, err, before, s.Problems[key])
			}
		}
	}
}

// TestFits checks that connected networks cannot overlap, while others can.
func TestFits(t *testing.T) {
	t.Parallel()
	s := NewSnapshot()
	s.Set("networks/default", []byte(`{"subnets": [{"cidr": "10.244.0.0/16"}]}`))
	s.Set("networks/blue", []byte(`{"isolated": true, "vni": 9, "subnets": [{"cidr": "10.0.0.0/16"}], "peers": ["n"]}`))
	for doc, want := range map[string]string{
		`{"subnets": [{"cidr": "10.245.0.0/16"}]}`:                                                                          "",
		`{"subnets": [{"cidr": "10.244.3.0/24"}]}`:                                                                          "overlaps with 10.244.0.0/16 of network default",
		`{"isolated": true, "subnets": [{"cidr": "10.244.3.0/24"}]}`:                                                        "",
		`{"isolated": true, "subnets": [{"cidr": "10.0.3.0/24"}]}`:                                                          "overlaps with 10.0.0.0/16 of network blue",
		`{"isolated": true, "vni": 9, "subnets": [{"cidr": "10.9.0.0/24"}]}`:                                                "vni 9 belongs to network blue",
		`{"isolated": true, "vni": 1, "subnets": [{"cidr": "10.9.0.0/24"}]}`:                                                "vni 1 belongs to network default",
		`{"isolated": true, "vni": 1, "subnets": [{"cidr": "10.9.0.0/24"}], "backends": [{"type": "vxlan", "port": 4789}]}`: "",
		`{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24"}], "peers": ["default"]}`:                                    "is not isolated",
	} {
		err := s.Fits(network(t, doc))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
	s.Set("networks/red", []byte(`{"isolated": true, "subnets": [{"cidr": "10.0.0.0/20"}], "peers": ["hub"]}`))
	s.Set("networks/hub", []byte(`{"isolated": true, "subnets": [{"cidr": "10.5.0.0/16"}], "peers": ["red", "n", "gone"]}`))
	for doc, want := range map[string]string{
		`{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24"}], "peers": ["n"]}`:                   "network n: it is its own peer",
		`{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24"}], "peers": ["red", "blue", "gone"]}`: "network n: its peers blue and red overlap in 10.0.0.0/16 and 10.0.0.0/20",
		`{"isolated": true, "subnets": [{"cidr": "10.0.8.0/24"}]}`:                                   "network hub: its peers n and red overlap in 10.0.8.0/24 and 10.0.0.0/20",
		`{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24"}], "peers": ["red", "hub"]}`:          "",
	} {
		err := s.Fits(network(t, doc))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
	if s.ArePeers("blue", "n") {
		t.Error("a network that is not there is a peer")
	}
	s.Set("networks/n", []byte(`{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24"}]}`))
	if s.ArePeers("blue", "n") {
		t.Error("one says so, and they are peers")
	}
	s.Set("networks/n", []byte(`{"isolated": true, "subnets": [{"cidr": "10.9.0.0/24"}], "peers": ["blue"]}`))
	if !s.ArePeers("blue", "n") || !s.ArePeers("n", "blue") {
		t.Error("both say so, and are no peers")
	}
}

// TestOverlap checks which of two networks with overlapping subnets gets no new addresses.
func TestOverlap(t *testing.T) {
	t.Parallel()
	s := NewSnapshot()
	for key, value := range map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.0.0.0/16"}]}`,
		"networks/a":       `{"subnets": [{"cidr": "10.1.0.0/16"}, {"cidr": "10.0.7.0/24"}]}`,
		"networks/b":       `{"subnets": [{"cidr": "10.2.0.0/24"}]}`,
		"networks/c":       `{"subnets": [{"cidr": "10.2.0.0/16"}]}`,
		"networks/d":       `{"subnets": [{"cidr": "10.3.0.0/24"}]}`,
		"networks/e":       `{"subnets": [{"cidr": "10.3.0.0/16"}]}`,
		"networks/f":       `{"subnets": [{"cidr": "10.4.0.0/24"}]}`,
		"networks/g":       `{"subnets": [{"cidr": "10.4.0.0/16", "assign": "cluster"}]}`,
		"networks/own":     `{"isolated": true, "vni": 7, "subnets": [{"cidr": "10.0.0.0/16"}]}`,
		BlockKey("a", netip.MustParsePrefix("10.1.0.0/26")): `{"node": "n", "subnet": "10.1.0.0/16"}`,
		BlockKey("e", netip.MustParsePrefix("10.3.9.0/26")): `{"node": "n", "subnet": "10.3.0.0/16"}`,
		"addresses/g/10.4.0.7":                              `{"owner": "x"}`,
	} {
		s.Set(key, []byte(value))
	}
	want := map[string]string{
		"a": "its subnet 10.0.7.0/24 overlaps with 10.0.0.0/16 of network default", // although it has a block
		"c": "its subnet 10.2.0.0/16 overlaps with 10.2.0.0/24 of network b",       // the second by name
		"d": "its subnet 10.3.0.0/24 overlaps with 10.3.0.0/16 of network e",       // which has a block
		"f": "its subnet 10.4.0.0/24 overlaps with 10.4.0.0/16 of network g",       // which has an address
	}
	for name, n := range s.Networks {
		if err := s.Overlap(n); (err == nil) != (want[name] == "") || err != nil && !strings.HasPrefix(err.Error(), want[name]) {
			t.Errorf("network %s: %v, want %q", name, err, want[name])
		}
	}
}

// TestSnapshot checks that an invalid document is one problem, which disappears when the document is fixed.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	s := NewSnapshot()
	docs := map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.0.0.0/16"}]}`, "nodes/a": `{"id": "1", "addresses": ["192.0.2.1/24", "2001:db8::1/64"]}`, "alive/a": `{}`,
		"blocks/default/10.0.1.0-26": `{"node": "a", "subnet": "10.0.0.0/16"}`, "blocks/default/10.0.0.64-26": `{"node": "a", "subnet": "10.0.0.0/16"}`,
		"addresses/default/10.0.9.9": `{"owner": "ns/p", "fixed": true}`, "endpoints/a/c/eth0": `{"network": "default", "ips": ["10.0.1.2"]}`,
	}
	for k, v := range docs {
		s.Set(k, []byte(v))
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.64/26"), netip.MustParsePrefix("10.0.1.0/26")}
	if got := s.BlocksOf("default", "a"); !reflect.DeepEqual(got, want) || len(s.Problems) != 0 {
		t.Errorf("blocks %v, problems %v", got, s.Problems)
	}
	if n := s.Nodes["a"]; n.Address(true).String() != "2001:db8::1" || n.Prefix(false).Bits() != 24 || !s.Alive["a"] {
		t.Errorf("the node is %+v", n)
	}
	for key := range docs {
		if strings.HasPrefix(key, AlivePrefix) {
			continue
		}
		s.Set(key, []byte(`{"subnets": 1, "node": [], "owner": [], "network": [], "id": {}}`))
		if s.Problems[key] == nil {
			t.Errorf("%s: no problem", key)
		}
		s.Set(key, []byte(docs[key]))
		if s.Problems[key] != nil {
			t.Errorf("%s: mended, and still %v", key, s.Problems[key])
		}
	}
	for key := range docs {
		s.Set(key, nil)
	}
	if n := len(s.Networks) + len(s.Nodes) + len(s.Alive) + len(s.Blocks) + len(s.Addresses) + len(s.Endpoints); n != 0 {
		t.Errorf("%d documents are left: %+v", n, s)
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1-10.0.0.1", "10.0.0.0/30": "10.0.0.0-10.0.0.3", "10.0.0.1-10.0.0.9": "10.0.0.1-10.0.0.9", "fd00::/127": "fd00::-fd00::1",
		"10.0.0.9-10.0.0.1": "", "x": "", "10.0.0.1-fd00::1": "",
	} {
		first, last, err := ParseRange(in)
		if got := first.String() + "-" + last.String(); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%s is %s, %v; want %q", in, got, err, want)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	f.Add("networks/default", []byte(`{"subnets": [{"cidr": "10.0.0.0/16"}]}`))
	f.Add("blocks/default/10.0.1.0-26", []byte(`{"node": "a"}`))
	f.Add("endpoints/a/c/eth0", []byte(`{}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		s := NewSnapshot()
		s.Set(key, value)
		s.BlocksOf("default", "a")
		for _, n := range s.Networks {
			if err := n.Validate(); err != nil {
				t.Errorf("a network that is not valid was taken: %v", err)
			}
			_ = s.Fits(n)
		}
		s.Set(key, nil)
		if len(s.Problems) != 0 {
			t.Errorf("what is gone has problems: %v", s.Problems)
		}
	})
}

// TestSharedPodCIDR checks that all agents give a podCIDR that several nodes have to the same one, whatever they
// learned first, and that the next node gets it when that one goes.
func TestSharedPodCIDR(t *testing.T) {
	t.Parallel()
	block := BlockKey(DefaultNetwork, netip.MustParsePrefix("10.244.1.0/24"))
	shared := []byte(`{"podCIDRs": ["10.244.1.0/24"]}`)
	docs := map[string][]byte{
		"networks/default": []byte(`{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}]}`), "nodes/a": shared, "nodes/b": shared, "nodes/c": shared,
		"nodes/d": []byte(`{"podCIDRs": ["10.244.2.0/24"]}`),
	}
	for range 200 {
		s := NewSnapshot()
		keys := slices.Collect(maps.Keys(docs))
		for _, i := range rand.Perm(2 * len(keys)) { // each one twice
			s.Set(keys[i%len(keys)], docs[keys[i%len(keys)]])
		}
		left := []string{"a", "b", "c"}
		for len(left) > 0 {
			if b := s.Blocks[block]; b == nil || b.Node != left[0] || len(s.Blocks) != 2 {
				t.Fatalf("with the nodes %v: %+v, %d blocks", left, b, len(s.Blocks))
			}
			for i, node := range left {
				if lost := s.LostPodCIDRs(node); (len(lost) == 1) != (i > 0) {
					t.Fatalf("with the nodes %v: %s lost %v", left, node, lost)
				}
			}
			i := rand.N(len(left))
			s.Set("nodes/"+left[i], nil)
			left = slices.Delete(left, i, i+1)
		}
		if len(s.Blocks) != 1 || len(s.rivals) != 0 {
			t.Fatalf("without these nodes: %d blocks, rivals %v", len(s.Blocks), s.rivals)
		}
	}
}

// TestPodCIDRs checks which blocks nodes have in a subnet whose ranges Kubernetes gives them.
func TestPodCIDRs(t *testing.T) {
	t.Parallel()
	const whole = `{"subnets": [{"cidr": "10.244.0.0/16", "assign": "podCIDR"}, {"cidr": "fd00::/48", "assign": "podCIDR"}, {"cidr": "10.9.0.0/16"}]}`
	s := NewSnapshot()
	want := func(when string, want ...string) {
		t.Helper()
		var have []string
		for _, key := range slices.Sorted(maps.Keys(s.Blocks)) {
			b := s.Blocks[key]
			have = append(have, b.Node+" "+b.CIDR.String())
			if !b.OfNode || b.Key() != key || !b.Subnet.Contains(b.CIDR.Addr()) || s.Networks[DefaultNetwork].CanBlock(b) != nil {
				t.Errorf("%s: block %+v", when, b)
			}
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s: the blocks are %q, want %q", when, have, want)
		}
	}
	s.Set("nodes/a", []byte(`{"podCIDRs": ["10.244.1.0/24", "fd00:0:0:1::/64", "10.9.1.0/24", "10.1.0.0/24"]}`))
	want("without the network")
	s.Set("networks/default", []byte(whole))
	want("with the network", "a 10.244.1.0/24", "a fd00:0:0:1::/64")
	s.Set("nodes/b", []byte(`{"podCIDRs": ["10.244.1.0/24", "10.244.2.0/25"]}`))
	want("another node with one of them", "a 10.244.1.0/24", "b 10.244.2.0/25", "a fd00:0:0:1::/64")
	if docs := s.Documents(); len(docs) != 3 {
		t.Errorf("%d documents to save, want the network and two nodes", len(docs))
	}
	if err := s.CheckUnused(DefaultNetwork); err != nil {
		t.Errorf("blocks that nobody claimed: %v", err)
	}
	s.Set("nodes/a", []byte(`{"podCIDRs": ["10.244.7.0/24"]}`))
	want("a changed node", "b 10.244.1.0/24", "b 10.244.2.0/25", "a 10.244.7.0/24")
	listed := NewSnapshot()
	listed.Set("networks/default", []byte("{"))
	listed.Set("nodes/a", []byte("{"))
	listed.Keep(s)
	s = listed
	want("unreadable after a list", "a 10.244.7.0/24")
	s.Set("nodes/a", nil)
	want("a deleted node")
	for doc, want := range map[string]string{
		`{"subnets": [{"cidr": "10.0.0.0/16", "assign": "podCIDR", "block": 24}]}`: "--node-cidr-mask-size",
		`{"subnets": [{"cidr": "10.0.0.0/16", "assign": "podCIDR"}]}`:              "podCIDRs belong to the network default", // its name is n
	} {
		if err := network(t, doc).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
}

// TestCheckChange checks which changes of a subnet with addresses in use are rejected.
func TestCheckChange(t *testing.T) {
	t.Parallel()
	s := NewSnapshot()
	for key, value := range map[string]string{
		"networks/default": `{"subnets": [{"cidr": "10.0.0.0/16", "assign": "podCIDR"}, {"cidr": "10.1.0.0/16"}, {"cidr": "10.2.0.0/16"}]}`,
		"nodes/a":          `{"podCIDRs": ["10.0.1.0/24"]}`, "blocks/default/10.1.0.0-26": `{"node": "a", "subnet": "10.1.0.0/16"}`,
	} {
		s.Set(key, []byte(value))
	}
	const lacks = "which the new configuration lacks"
	for after, want := range map[string]string{
		`{"cidr": "10.0.0.0/16", "assign": "podCIDR"}, {"cidr": "10.1.0.0/16", "assign": "block", "block": 26}`: "",
		`{"cidr": "10.2.0.0/16", "block": 24, "assign": "cluster"}, {"cidr": "10.1.0.0/16"}`:                    "",
		`{"cidr": "10.0.0.0/16"}, {"cidr": "10.1.0.0/16"}`:                                                      `10.0.1.0/24 of subnet 10.0.0.0/16, whose assign cannot change to "block"`,
		`{"cidr": "10.0.0.0/16", "assign": "cluster"}, {"cidr": "10.1.0.0/16"}`:                                 `10.0.1.0/24 of subnet 10.0.0.0/16, whose assign cannot change to "cluster"`,
		`{"cidr": "10.0.0.0/16", "assign": "podCIDR"}, {"cidr": "10.1.0.0/16", "assign": "cluster"}`:            `10.1.0.0/26 of subnet 10.1.0.0/16, whose assign cannot change to "cluster"`,
		`{"cidr": "10.0.0.0/16", "assign": "podCIDR"}, {"cidr": "10.1.0.0/16", "assign": "podCIDR"}`:            `10.1.0.0/26 of subnet 10.1.0.0/16, whose assign cannot change to "podCIDR"`,
		`{"cidr": "10.0.0.0/15", "assign": "podCIDR"}`:                                                          `10.1.0.0/26 of subnet 10.1.0.0/16, whose assign cannot change to "podCIDR"`,
		`{"cidr": "10.0.0.0/16", "assign": "podCIDR"}, {"cidr": "10.1.0.0/17"}, {"cidr": "10.3.0.0/16"}`:        "",
		`{"cidr": "10.0.0.0/16", "assign": "podCIDR"}, {"cidr": "10.1.128.0/17"}`:                               lacks,
		`{"cidr": "10.0.0.0/16", "assign": "podCIDR"}, {"cidr": "10.1.0.0/16", "block": 24}`:                    lacks,
		`{"cidr": "10.0.0.0/16", "assign": "podCIDR"}`:                                                          lacks,
	} {
		n := &Network{Name: "default"}
		if err := json.Unmarshal([]byte(`{"subnets": [`+after+`]}`), n); err != nil {
			t.Fatal(err)
		}
		if err := s.CheckChange(s.Networks["default"], n); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("change to %s: %v, want %q", after, err, want)
		}
	}
}
