package podnet_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/podnet"
)

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	gw := netip.MustParseAddr("10.0.0.1")
	for text, want := range map[string][]podnet.Network{
		"":                       nil,
		"  ":                     nil,
		"a":                      {{Name: "a", Namespace: "shop"}},
		"a,b":                    {{Name: "a", Namespace: "shop"}, {Name: "b", Namespace: "shop"}},
		" n1/a@eth1 , b@back0\n": {{Name: "a", Namespace: "n1", IfName: "eth1"}, {Name: "b", Namespace: "shop", IfName: "back0"}},
		"n1 / a @ eth1,b @back0": {{Name: "a", Namespace: "n1", IfName: "eth1"}, {Name: "b", Namespace: "shop", IfName: "back0"}},
		"[]":                     nil,
		`[{"name": "a"}, {"name": "b", "namespace": "n1", "interface": "i1"}, {"name": "c", "interfaceRequest": "i2"}]`: {
			{Name: "a", Namespace: "shop"}, {Name: "b", Namespace: "n1", IfName: "i1"}, {Name: "c", Namespace: "shop", IfName: "i2"}},
		`[{"name": "a", "ips": ["10.0.0.5/24", "fd00::5"], "mac": "02:00:00:00:00:05", "default-route": ["::ffff:10.0.0.1"],
		   "bandwidth": {"ingressRate": 1000, "ingressBurst": 2000}, "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}],
		   "cni-args": {"x": {"y": 12345678901234567890}}, "infiniband-guid": "24:8a", "deviceID": "0000:00:1f.6", "of-tomorrow": 1}]`: {
			{Name: "a", Namespace: "shop", IPs: []string{"10.0.0.5/24", "fd00::5"}, MAC: "02:00:00:00:00:05", DefaultRoute: []netip.Addr{gw},
				Bandwidth: &podnet.Bandwidth{IngressRate: 1000, IngressBurst: 2000}, Ports: []podnet.PortMapping{{HostPort: 80, ContainerPort: 8080, Protocol: "tcp"}},
				Args: map[string]any{"x": map[string]any{"y": json.Number("12345678901234567890")}}, InfinibandGUID: "24:8a", DeviceID: "0000:00:1f.6"}},
	} {
		if got, err := podnet.ParseNetworks(text, "shop"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"a,":                      `"": want [NAMESPACE/]NAME[@INTERFACE]`,
		"a b":                     `"a b": want [NAMESPACE/]NAME`,
		"/a":                      "want a namespace before the slash",
		"a/b/c":                   `"a/b/c": want`,
		"a@":                      "want the name of an interface after the @",
		"a@b@c/":                  "want the name of an interface",
		"ns/a@b@c":                "without another @",
		"a@an-interface-too-long": "at most 15",
		`{"name": "a"}`:           "want a list of objects",
		`[{"name": "a"}`:          "1:",
		`[{}]`:                    "[0]: missing network name",
		`[{"name": "a"}, {"name": "b", "mac": "x"}]`:           `[1]: mac "x"`,
		`[{"name": "a", "ips": ["x"]}]`:                        `address "x"`,
		`[{"name": "a", "ips": "10.0.0.1"}]`:                   "ips",
		`[{"name": "a", "default-route": ["x"]}]`:              "default-route",
		`[{"name": "a", "cni-args": "x"}]`:                     `cni-args = "x": want an object`,
		`[{"name": "a", "portMappings": [{"hostPort": 80}]}]`:  "ports are 1 to 65535",
		`[{"name": "a", "interface": "a/b"}]`:                  "interface name",
		`[{"name": "a", "bandwidth": {"ingressRate": "10M"}}]`: "ingressRate",
	} {
		got, err := podnet.ParseNetworks(text, "shop")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{
		"1k": 1000, "10M": 1e7, "1.5G": 15e8, "64Ki": 65536, "1P": 1e15, "1000": 1000, "1e6": 1e6, "2E3": 2000, "1000000m": 1000, "1000.5": 1001, ".5M": 5e5, "0.001Gi": 1073742,
	} {
		if got, err := podnet.ParseRate(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "want a quantity", "M": "want a quantity", "10": "want 1k to 1P", "999": "want 1k to 1P", "2P": "want 1k to 1P", "1E": "want 1k to 1P", "-1M": "want a quantity",
		"1/2M": "want a quantity", "0x10M": "want a quantity", "1e999M": "want a quantity", "10 M": "want a quantity", "1_000k": "want a quantity", "10Mbit": "want a quantity", "1.2.3M": "want a quantity",
	} {
		if got, err := podnet.ParseRate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v, want %s", text, got, err, want)
		}
	}
}

func TestParsePort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]podnet.PortMapping{
		"80":                    {HostPort: 80, ContainerPort: 80, Protocol: "tcp"},
		"8080:80":               {HostPort: 8080, ContainerPort: 80, Protocol: "tcp"},
		"8080:80/UDP":           {HostPort: 8080, ContainerPort: 80, Protocol: "udp"},
		"127.0.0.1:53:5353/udp": {HostPort: 53, ContainerPort: 5353, Protocol: "udp", HostIP: "127.0.0.1"},
		"[fd00::1]:80:8080":     {HostPort: 80, ContainerPort: 8080, Protocol: "tcp", HostIP: "fd00::1"},
	} {
		if got, err := podnet.ParsePort(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "/", "x", "0:80", "80:0", "65536:1", "80:80/icmp", "80:80:80:80", "a:80:80", "[::1:80:80", "[x]:80:80", "fd00::1:80:80", "80/", "-1:1"} {
		if got, err := podnet.ParsePort(text); err == nil || !strings.Contains(err.Error(), "want [[HOSTIP:]HOSTPORT:]PORT[") {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestAnnotate(t *testing.T) {
	t.Parallel()
	p := podnet.Pod{ID: "x", Netns: "/n", Namespace: "shop", Networks: []podnet.Network{{Ports: []podnet.PortMapping{{HostPort: 1, ContainerPort: 1}}, MAC: "02:00:00:00:00:09"}}}
	must(t, p.Annotate(map[string]string{
		podnet.AnnotationDefaultNetwork: "kube-system/main@pod0",
		podnet.AnnotationNetworks:       `[{"name": "b", "ips": ["10.0.0.9"]}]`,
		podnet.AnnotationIngress:        "10M",
		podnet.AnnotationEgress:         "1G",
		"fairlead.io/networks":          "c@back0",
		"fairlead.io/ips":               "10.1.0.5, fd00::5",
		"fairlead.io/ips.net1":          "10.0.0.10",
		"fairlead.io/mac.back0":         "02:00:00:00:00:05",
		"fairlead.io/ports":             "8080:80 53:53/udp",
		"fairlead.io/aliases.net1":      "www,api",
		"fairlead.io/egress-bandwidth":  "2G",
		"fairlead.io/labels":            "app=web", // for fairlead-policy
		"example.com/else":              "whatever",
	}))
	must(t, p.Validate())
	want := []podnet.Network{
		{Name: "main", Namespace: "kube-system", IfName: "pod0", IPs: []string{"10.1.0.5", "fd00::5"}, MAC: "02:00:00:00:00:09",
			Bandwidth: &podnet.Bandwidth{IngressRate: 1e7, EgressRate: 2e9},
			Ports:     []podnet.PortMapping{{HostPort: 1, ContainerPort: 1}, {HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}, {HostPort: 53, ContainerPort: 53, Protocol: "udp"}}},
		{Name: "b", Namespace: "shop", IPs: []string{"10.0.0.10"}, Aliases: []string{"www", "api"}},
		{Name: "c", IfName: "back0", MAC: "02:00:00:00:00:05"},
	}
	for i := range want {
		want[i].Labels = "app=web"
	}
	if !reflect.DeepEqual(p.Networks, want) {
		t.Errorf("got\n%+v, want\n%+v", p.Networks, want)
	}
	for key, c := range map[string][2]string{
		"fairlead.io/ip":                {"10.0.0.1", "annotation fairlead.io/ip: there is no such key: want one of aliases, default-network, "},
		"fairlead.io/networks.eth0":     {"a", "there is no such key"},
		"fairlead.io/mac.eth9":          {"x", `the pod has no interface "eth9"`},
		"fairlead.io/ports":             {"x", `port "x"`},
		"fairlead.io/default-network":   {"a,b", "want one network"},
		podnet.AnnotationIngress:        {"10Q", "annotation kubernetes.io/ingress-bandwidth: rate"},
		podnet.AnnotationNetworks:       {"a b", "annotation k8s.v1.cni.cncf.io/networks"},
		podnet.AnnotationDefaultNetwork: {"", "want one network"},
	} {
		p := podnet.Pod{ID: "x"}
		wants(t, p.Annotate(map[string]string{key: c[0]}), c[1])
	}
	for range 20 { // whatever their order in the map is
		p := podnet.Pod{ID: "x"}
		wants(t, p.Annotate(map[string]string{"fairlead.io/default-network": "a", podnet.AnnotationDefaultNetwork: "b"}), "selects the default network, too: want one of the two")
	}
}

// TestNetworkStatus compares with a golden file; UPDATE=1 writes it.
func TestNetworkStatus(t *testing.T) {
	t.Parallel()
	zero, one, out := 0, 1, 7
	s := podnet.PodStatus{Attachments: []podnet.Attachment{
		{Network: "main", IfName: "eth0", Default: true, Result: &cni.Result{
			Interfaces: []cni.Interface{{Name: "veth1"}, {Name: "eth0", Mac: "02:00:00:00:00:01", MTU: 1450, Sandbox: "/n"}},
			IPs: []cni.IP{{Interface: &one, Address: netip.MustParsePrefix("10.1.0.5/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
				{Interface: &one, Address: netip.MustParsePrefix("fd00::5/64")}, {Interface: &zero, Address: netip.MustParsePrefix("192.0.2.1/32")}, {Interface: &out, Address: netip.MustParsePrefix("192.0.2.7/32")}},
			Routes: []cni.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}, {Dst: netip.MustParsePrefix("10.0.0.0/8")}, {Dst: netip.MustParsePrefix("::/0"), GW: netip.MustParseAddr("fd00::1")}},
			DNS:    cni.DNS{Nameservers: []string{"10.1.0.1"}, Search: []string{"shop"}},
		}},
		{Network: "b", Namespace: "shop", IfName: "net1", DeviceID: "0000:00:1f.6", Result: &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix("10.2.0.5/24")}}}},
		{Network: "c", IfName: "net2"},
	}}
	got, err := s.StatusAnnotation()
	must(t, err)
	file := filepath.Join("testdata", "network-status.golden")
	if os.Getenv("UPDATE") != "" {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(file, []byte(got+"\n"), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got+"\n" != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzNetworks checks that a selection is parsed or rejected. A parsed one is valid, and is the same after writing it
// in the short form and parsing it again.
func FuzzNetworks(f *testing.F) {
	for _, s := range []string{"a", "n/a@eth1,b", `[{"name": "a", "namespace": "n", "interface": "i", "ips": ["10.0.0.1/24"], "mac": "02:00:00:00:00:01",
		"default-route": ["10.0.0.1", "::1"], "bandwidth": {"ingressRate": 1}, "portMappings": [{"hostPort": 1, "containerPort": 1}], "cni-args": {"a": null}}]`, "[", "{}", ",@/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := podnet.ParseNetworks(s, "shop")
		if err != nil {
			return
		}
		for i, n := range list {
			n.IfName = fmt.Sprint("i", i)
			if err := (&podnet.Pod{ID: "x", Netns: "/n", Networks: []podnet.Network{n}}).Validate(); err != nil {
				t.Errorf("%q: accepted, and not valid: %v", s, err)
			}
			short := n.Namespace + "/" + n.Name + "@" + n.IfName
			again, err := podnet.ParseNetworks(short, "")
			if err == nil && (len(again) != 1 || again[0].Name != n.Name || again[0].Namespace != n.Namespace) {
				t.Errorf("%q: %s is read as %+v", s, short, again)
			}
		}
	})
}

// FuzzAnnotate checks that any annotation yields a valid pod or an error, and that the pod can be stored.
func FuzzAnnotate(f *testing.F) {
	for _, kv := range [][2]string{{"networks", "a,b@x"}, {"ips.net1", "10.0.0.1"}, {"mac", "x"}, {"ports", "80 [::1]:1:2/udp"}, {"ingress-bandwidth", "1.5Gi"}, {"nothing", ""}} {
		f.Add(kv[0], kv[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		p := podnet.Pod{ID: "x", Netns: "/n"}
		err := p.Annotate(map[string]string{podnet.Prefix + key: value, podnet.AnnotationNetworks: "one"})
		if err != nil || p.Validate() != nil {
			return
		}
		raw, err := json.Marshal(p)
		must(t, err)
		var again podnet.Pod
		must(t, json.Unmarshal(raw, &again))
		if more, err := json.Marshal(again); err != nil || string(more) != string(raw) {
			t.Errorf("%q=%q: written as %s, read as %s (%v)", key, value, raw, more, err)
		}
	})
}

// FuzzRate checks that a rate is within its bounds or rejected, and that no input takes long.
func FuzzRate(f *testing.F) {
	for _, s := range []string{"10M", "1.5Gi", "1e9", "1e-3P", "999999999999999999999999n", "E", ".", "1k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := podnet.ParseRate(s); err == nil && (v < 1000 || v > 1e15) {
			t.Errorf("%q: %d", s, v)
		}
	})
}

// FuzzPort checks that a parsed port is valid, and is the same after writing and parsing it again.
func FuzzPort(f *testing.F) {
	for _, s := range []string{"80", "8080:80/udp", "127.0.0.1:1:2", "[::1]:1:2/sctp", "[fe80::1%eth0]:1:2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := podnet.ParsePort(s)
		if err != nil {
			return
		}
		text := fmt.Sprintf("%d:%d/%s", p.HostPort, p.ContainerPort, p.Protocol)
		if p.HostIP != "" {
			text = "[" + p.HostIP + "]:" + text
		}
		if again, err := podnet.ParsePort(text); err != nil || again != p {
			t.Errorf("%q: %+v, then %s: %+v, %v", s, p, text, again, err)
		}
	})
}

// TestManyNetworks checks that a pod with very many networks is rejected by one short error, before anything is read.
func TestManyNetworks(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		99: "", 100: "the pod has 101 networks: want at most 100", 100_000: "the pod has 100001 networks: want at most 100",
	} {
		p := &podnet.Pod{ID: "x", Netns: "/n", Namespace: "shop", Name: "p", UID: "u"}
		must(t, p.Annotate(map[string]string{"k8s.v1.cni.cncf.io/networks": "a" + strings.Repeat(",a", n-1)}))
		err := p.Validate()
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%d networks: %v, want %q", n, err, want)
		}
	}
}
