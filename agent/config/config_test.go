package config

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{"FAIRLEAD_LIB": "/lib"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

func load(t *testing.T, text string, pairs ...string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file, env(pairs...))
}

// TestEtcdPrefix checks that a prefix with and without a slash at its end is the same cluster.
func TestEtcdPrefix(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"": "/fairlead/", "/a": "/a/", "/a/": "/a/", "/": "/", "a/b": "a/b/"} {
		for _, in := range []string{"file", "environment"} {
			text, pairs := `store: {etcd: {endpoints: ["http://192.0.2.1:2379"], prefix: "`+prefix+`"}}`, []string{}
			if in == "environment" {
				text, pairs = `store: {etcd: {endpoints: ["http://192.0.2.1:2379"]}}`, []string{"FAIRLEAD_AGENT_STORE_ETCD_PREFIX", prefix}
			}
			if c, err := load(t, text, pairs...); err != nil || c.Store.Etcd.Prefix != want {
				t.Errorf("%q in the %s: got %+v, %v; want %q", prefix, in, c, err, want)
			}
		}
	}
}

// TestListErrors checks that a list that a runtime would reject is an error with its place in the file.
func TestListErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"cniVersion: 1.0.0\n    name: pods\n    plugins: [{type: ptp}]":                   "",
		"name: pods\n    plugins: [{type: ptp}]":                                          "",
		"cniVersion: 1.0\n    name: pods\n    plugins: [{type: ptp}]":                     `:4:17: cni.list.cniVersion = 1: `,
		"cniVersion: x\n    name: pods\n    plugins: [{type: ptp}]":                       `:4:17: cni.list.cniVersion = "x": `,
		"name: a/b\n    plugins: [{type: ptp}]":                                           `:4:11: cni.list.name = "a/b": `,
		"name: pods\n    plugins: [{type: ptp}, {name: x}]":                               `:5:28: cni.list.plugins[1].type: `,
		"name: pods\n    plugins: [{type: ptp, ipam: {type: 5}}]":                         `:5:40: cni.list.plugins[0].ipam.type = 5: `,
		"name: pods\n    plugins: []":                                                     ":4:5: cni.list: {",
		"{name: pods, plugins: [{type: ptp}], cniVersions: [1.1.0], disableCheck: maybe}": ":4:78: cni.list.disableCheck = ",
	} {
		_, err := load(t, "cni:\n  file: /net.d/a.conflist\n  list:\n    "+text+"\n")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot %v, want %q", text, err, want)
		}
	}
}

// TestDocumentedFile checks that an agent accepts the documented file, also with every commented key enabled.
func TestDocumentedFile(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../contrib/agent/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := load(t, string(raw))
	if err != nil {
		t.Fatal(err)
	}
	none, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	none.Network, none.Store.File = c.Network, c.Store.File
	if !reflect.DeepEqual(c, none) {
		t.Errorf("the file says\n%+v\nwithout it an agent has\n%+v", c, none)
	}
	whole := regexp.MustCompile(`(?m)^( *)# ( *(- )?\{?[a-zA-Z]+:( .*)?)$`).ReplaceAllString(string(raw), "$1$2")
	whole = strings.Replace(whole, "networkFile: ", "# networkFile: ", 1) // instead of network
	whole = strings.Replace(whole, "kubeconfig: ", "# kubeconfig: ", 1)   // instead of etcd
	whole = strings.ReplaceAll(whole, "enabled: ", "# enabled: ")         // needs kubeconfig
	whole = strings.Replace(whole, "directory: ", "# directory: ", 1)     // needs enabled
	all, err := load(t, whole)
	if err != nil {
		t.Fatalf("%v in\n%s", err, whole)
	}
	if all.Node != "worker-1" || len(all.Store.Etcd.Endpoints) != 3 || len(all.Network.Backends) != 5 || len(all.Network.Subnets) != 2 || len(all.Addresses) != 2 || all.Flannel.Prefix == "" || all.CNI.File == "" {
		t.Errorf("not every key was read: %+v, of\n%s", all, whole)
	}
	page := string(raw)
	for _, s := range Settings() {
		words := strings.Split(s.Key, ".")
		if !regexp.MustCompile(`(?m)^[ #]*` + words[len(words)-1] + `:`).MatchString(page) {
			t.Errorf("the file does not tell of %s", s.Key)
		}
	}
}

// TestSettings checks that every flag and variable corresponds to a key, and sets it.
func TestSettings(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"addresses": "192.0.2.1, 2001:db8::1", "grace": "7m", "network": `{"subnets":[{"cidr":"10.0.0.0/8"}]}`,
		"networkFile": netConfFile(t), "listen": "127.0.0.1:1", "node": "n", "store.etcd.endpoints": "http://a:1,http://b:2",
		"store.etcd.prefix": "/x/", "podNetworks.enabled": "true", "policy.enabled": "true",
	}
	names := map[string]bool{}
	for _, s := range Settings() {
		if names[s.Flag()] || s.About == "" {
			t.Errorf("%s: the flag %s is used twice, or the setting has no description", s.Key, s.Flag())
		}
		names[s.Flag()] = true
		v := values[s.Key]
		if v == "" {
			v = "/some/thing"
		}
		file := "store: {etcd: {endpoints: [\"http://a:1\"]}}"
		if strings.HasPrefix(s.Key, "store.kubernetes") {
			file = ""
		}
		if s.Key == "podNetworks.enabled" || s.Key == "policy.enabled" {
			file = "store: {kubernetes: {kubeconfig: in-cluster}}"
		}
		if s.Key == "policy.directory" {
			file += "\npolicy: {enabled: true, directory: /other}"
		}
		with, err := load(t, file, s.Variable(), v)
		if err != nil {
			t.Errorf("%s=%s: %v", s.Variable(), v, err)
			continue
		}
		without, err := load(t, file)
		if err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(with, without) {
			t.Errorf("%s=%s changes nothing", s.Variable(), v)
		}
	}
	if f := (Setting{Key: "store.etcd.caCert"}); f.Flag() != "store-etcd-ca-cert" || f.Variable() != "FAIRLEAD_AGENT_STORE_ETCD_CA_CERT" {
		t.Errorf("flag %s, variable %s", f.Flag(), f.Variable())
	}
}

func netConfFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "net-conf.json")
	if err := os.WriteFile(file, []byte(`{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestInvalidConfig checks that the error for an invalid value names the key.
func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"node: a\nNode: c":                       `agent.yaml:2:1: Node: the key occurs twice: line 1 has node`,
		"nodes: a":                               `agent.yaml:1:1: nodes: there is no such key: did you mean "node"?`,
		"node: " + strings.Repeat("a", 249):      "at most 248",
		"node: a b":                              `node is "a b"`,
		"grace: soon":                            `agent.yaml:1:8: grace = soon: want one like "5m"`,
		"grace: 0s":                              `agent.yaml:1:8: grace = 0s: want one like "5m"`,
		"listen: 9479":                           `agent.yaml:1:9: listen = 9479: want text: "9479", in quotes`,
		"addresses: [127.0.0.1]":                 "127.0.0.1",
		"addresses: [0.0.0.0]":                   "0.0.0.0",
		"addresses: [169.254.1.1]":               "addresses: the address 169.254.1.1 cannot be a node's address: 169.254.0.0/16 is link-local",
		"addresses: [\"fe80::1\"]":               "fe80::/10 is link-local",
		"addresses: [\"fe80::1%eth0\"]":          "fe80::/10 is link-local",
		"addresses: [\"::ffff:192.0.2.1\"]":      "cannot be a node's address",
		"addresses: [192.0.2.1, 192.0.2.2]":      "at most one of this host's addresses for each family",
		"flannel: {prefix: /coreos.com/network}": "without store.etcd.endpoints or store.kubernetes.kubeconfig",
		"store: {kubernetes: {kubeconfig: in-cluster}, etcd: {endpoints: [\"http://a:1\"]}}": "are both set: want one store",
		"store: {etcd: {endpoints: []}}":                                             "store.etcd.endpoints is empty: want the URLs",
		"store: {etcd: {caCert: /ca.pem}}":                                           "store.etcd.endpoints is empty: want the URLs",
		"store: {etcd: {}}":                                                          "agent.yaml:1:15: store.etcd is {}: want endpoints",
		"store: {kubernetes: {}}":                                                    "agent.yaml:1:21: store.kubernetes is {}: want kubeconfig",
		"network: {subnets: []}":                                                     "agent.yaml:1:20: network default: subnets is empty",
		"network: {subnets: [{cidr: 10.0.0.1/8}]}":                                   "agent.yaml:1:28: network default: subnets[0].cidr is 10.0.0.1/8: want its first address, 10.0.0.0/8",
		"network: {isolated: true, subnets: [{cidr: 10.0.0.0/8}]}":                   "agent.yaml:1:21: network default: isolated is set",
		"network: {subnets: [{cidr: 10.0.0.0/8}], backends: [{type: udp}]}":          `agent.yaml:1:60: network.backends[0].type = udp: want one of host-gw, vxlan, wireguard, ipip, bgp`,
		"store:\n  etcd:\n    endpoint: [a]":                                         `agent.yaml:3:5: store.etcd.endpoint: there is no such key: did you mean "endpoints"?`,
		"store: {etcd: {endpoints: http://a:1}}":                                     `agent.yaml:1:27: store.etcd.endpoints = http://a:1: want a list, like ["..."]`,
		"store: {etcd: {server: a}}":                                                 "want one of endpoints, prefix, caCert, cert, key, username, passwordFile",
		"network: {subnets: 10.0.0.0/8}":                                             "1:20: network.subnets = 10.0.0.0/8: want a list, like [{cidr: 10.244.0.0/16}]",
		"network: {subnets: [10.0.0.0/8]}":                                           "1:21: network.subnets[0] = 10.0.0.0/8: want keys with values, like {cidr: 10.244.0.0/16}",
		"network: {subnets: [{cidr: 10.0.0.0}]}":                                     "1:28: network.subnets[0].cidr = 10.0.0.0: want one like 10.244.0.0/16",
		"network: {subnets: [{cidr: 10.0.0.0/8, block: '26'}]}":                      "network.subnets[0].block = 26: want a number",
		"network: {nat: 'yes', subnets: [{cidr: 10.0.0.0/8}]}":                       "network.nat = yes: want true or false",
		"network: {subnets: [{cidr: 10.0.0.0/8}], backends: [vxlan]}":                `network.backends[0] = vxlan: want keys with values, like {type: "..."}`,
		"x: &s {cird: 10.0.0.0/8}\nnetwork: {subnets: [*s, {<<: *s}]}":               `1:8: network.subnets[1].cird: there is no such key: did you mean "cidr"?`,
		"network: {subnets: [{cidr: 10.0.0.0/8}], backends: [{type: bgp, asn: -1}]}": "network.backends[0].asn = -1: want a number",
		"addresses: 192.0.2.1":                                                       "addresses = 192.0.2.1: want a list, like [192.0.2.11]",
		"addresses: [nonsense]":                                                      "addresses[0] = nonsense: want one like 192.0.2.11",
		"grace: 5":                                                                   `grace = 5: want one like "5m"`,
		"grace: {a: b}":                                                              `grace: want one like "5m"`,
		"- a":                                                                        "agent.yaml:1:1: want keys with values, like {",
		"a":                                                                          "agent.yaml:1:1: a: want keys with values",
		"grace: 5\nlisten: 1":                                                        "2:9: listen = 1",
		"network: {subnets: [{cidr: 10.0.0.0/8}]}\nnetworkFile: /n.json":             "network and networkFile are both set",
		"podNetworks: {enabled: true}":                                               "podNetworks.enabled is true without store.kubernetes.kubeconfig",
		"policy: {directory: /p}":                                                    "policy.enabled is not true",
		"policy: {enabled: true, directory: p}":                                      "want an absolute path",
		"policy: {enabled: true, directory: /p}\nstore: {kubernetes: {kubeconfig: k}}": "policy.directory is set, and so is store.kubernetes.kubeconfig",
		"podNetworks: {enabled: 1}":              "podNetworks.enabled = 1: want true or false",
		"cni: {file: /etc/cni/net.d/x.conflist}": "cni has only one of file and list",
		"[":                                      "agent.yaml:1:1: a value is missing",
		"a: b: c":                                `agent.yaml:1:1: there is a second ":" on one line`,
		"node: a\n  grace: 5m":                   "agent.yaml:2:3: there is a second",
		"node: a\ngrace: 5m\nnode: b":            `agent.yaml:3:1: the key "node" occurs twice`,
		"node: a\n\tgrace: 5m":                   "agent.yaml:2:2: ",
		"network: {subnets: [{cidr: 10.0.0.0/8}], backends: [{type: udp}]}\nnodes: a": `agent.yaml:2:1: nodes: there is no such key`,
	} {
		_, err := load(t, text)
		if _, ok := errors.AsType[*InvalidError](err); !ok || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "yaml: ") {
			t.Errorf("%s: the error is %v, want one with %q", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), env()); err == nil {
		t.Error("a file that was named and is not there is no error")
	}
}

// TestInvalidSettings checks that errors in flags and variables name the flag or variable and the key. A misspelled key
// gets a suggestion.
func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	_, err := load(t, "", "FAIRLEAD_AGENT_NETWORK", `{"subnets": [{"cidr": "10.0.0.0/8"}], "natt": true}`)
	want := `FAIRLEAD_AGENT_NETWORK: 1:39: natt: there is no such key: did you mean "nat"?`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	got := Unknown([]string{"HOME=/", "FAIRLEAD_AGENT_NODE=a", "FAIRLEAD_AGENT_STORE_ETCD_ENDPOINT=http://a:1", "FAIRLEAD_AGENT_SERVICE_HOST=10.0.0.1", "FAIRLEAD_AGENT_PORT_80_TCP=tcp://10.0.0.1:80"})
	if !reflect.DeepEqual(got, []string{"FAIRLEAD_AGENT_STORE_ETCD_ENDPOINT"}) {
		t.Errorf("unknown are %v", got)
	}
}

func TestDurationRoundTrip(t *testing.T) {
	t.Parallel()
	d := Duration(90 * time.Second)
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var back Duration
	if err := json.Unmarshal(raw, &back); err != nil || back != d {
		t.Errorf("%s became %v: %v", raw, back, err)
	}
}

// TestNetConf checks that flannel's configurations have the same meaning as in flannel.
func TestNetConf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}`,
			`{"subnets":[{"cidr":"10.244.0.0/16","block":24,"exclude":["10.244.0.0-10.244.0.255"]}],"backends":[{"type":"vxlan"}],"nat":true}`},
		{`{"Network": "10.0.0.0/8", "SubnetLen": 20, "SubnetMin": "10.10.0.0", "SubnetMax": "10.99.0.0", "Backend": {"Type": "vxlan", "VNI": 7, "Port": 8473, "DirectRouting": true, "MTU": 1400}}`,
			`{"subnets":[{"cidr":"10.0.0.0/8","block":20,"exclude":["10.0.0.0-10.9.255.255","10.99.16.0-10.255.255.255"]}],"backends":[{"type":"vxlan","vni":7,"port":8473,"direct":true}],"mtu":1350,"nat":true}`},
		{`{"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "2001:cafe:42::/56", "Backend": {"Type": "host-gw"}}`,
			`{"subnets":[{"cidr":"2001:cafe:42::/56","block":64,"exclude":["2001:cafe:42::-2001:cafe:42:0:ffff:ffff:ffff:ffff"]}],"backends":[{"type":"host-gw"}],"nat":true}`},
		{`{"Network": "10.244.0.0/16", "Backend": {"Type": "ipip", "DirectRouting": true}}`,
			`{"subnets":[{"cidr":"10.244.0.0/16","block":24,"exclude":["10.244.0.0-10.244.0.255"]}],"backends":[{"type":"host-gw","when":"direct"},{"type":"ipip"}],"nat":true}`},
		{`{"Network": "10.1.0.0/24", "Backend": {"Type": "wireguard", "ListenPort": 51821, "PersistentKeepaliveInterval": 25}}`,
			`{"subnets":[{"cidr":"10.1.0.0/24","block":26,"exclude":["10.1.0.0-10.1.0.63"]}],"backends":[{"type":"wireguard","port":51821,"keepalive":25}],"nat":true}`},
	} {
		n, err := ParseNetConf([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		got, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("%s\n is %s\nwant %s", c.in, got, c.want)
		}
	}
	for in, want := range map[string]string{
		`{"Network": "10.244.0.0/16", "Backend": {"Type": "alivpc"}}`: `Backend.Type is "alivpc"`,
		`{"Backend": {"Type": "vxlan"}}`:                              "Network: is missing",
		`[`:                                                           "not a configuration of flannel",
	} {
		if _, err := ParseNetConf([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, want one with %q", in, err, want)
		}
	}
}

// TestFlannelExample reads the example for flannel's users.
func TestFlannelExample(t *testing.T) {
	t.Parallel()
	c, err := load(t, "networkFile: "+netConfFile(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.Network.Name != cluster.DefaultNetwork || c.Network.Subnets[0].BlockBits() != 24 || !c.Network.NAT {
		t.Errorf("the network is %+v", c.Network)
	}
}

func FuzzConfig(f *testing.F) {
	raw, err := os.ReadFile("../../contrib/agent/agent.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := &Config{}
		if Parse("f", raw, c) == nil && c.complete(env()) == nil && c.Node == "" {
			t.Error("a valid configuration without a node")
		}
	})
}

func FuzzNetConf(f *testing.F) {
	f.Add([]byte(`{"Network": "10.244.0.0/16", "SubnetLen": 20, "SubnetMin": "10.244.16.0", "Backend": {"Type": "vxlan"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if n, err := ParseNetConf(raw); err == nil && n.Validate() != nil {
			t.Error("it was taken, and is not valid")
		}
	})
}

// FuzzShape checks that no error contains the YAML decoder's own text: the comparison with the type finds every
// mismatch first.
func FuzzShape(f *testing.F) {
	for _, s := range []string{"node: 5", "a: &a {b: *a}", "network: {subnets: [{cidr: ~}], mtu: 99999999999999999999}", "<<: {node: a}", "addresses: !!binary aa", "? [a]\n: b", "network: {mtu: 0x10, vni: 1_0}", "node: !!str 5", "network: {backends: [{type: bgp, asn: -1}]}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := Parse("f", raw, &Config{})
		if err != nil && strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v", raw, err)
		}
	})
}

// TestExamples checks the example of each type, which messages about invalid values show.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of   reflect.Type
		want string
	}{
		{reflect.TypeFor[int](), "1"}, {reflect.TypeFor[uint32](), "1"}, {reflect.TypeFor[*bool](), "true"}, {reflect.TypeFor[[]int](), "[1]"},
		{reflect.TypeFor[string](), `"..."`}, {reflect.TypeFor[Duration](), `"5m"`}, {reflect.TypeFor[netip.Prefix](), "10.244.0.0/16"},
	} {
		if got := example(c.of); got != c.want {
			t.Errorf("%v: %s, want %s", c.of, got, c.want)
		}
	}
}
