package podnet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/podnet"
)

// TestPodRequestsReachPlugins checks that a pod's requests reach the plugins that declare them, and that CNI_ARGS are those of
// Kubernetes.
func TestPodRequestsReachPlugins(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	seen := filepath.Join(t.TempDir(), "seen")
	n.script("recorder", `[ $CNI_COMMAND = ADD ] && { echo "$CNI_ARGS"; echo "$conf"; } >`+seen+`
[ $CNI_COMMAND = ADD ] && exec echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"x"}],"ips":[{"interface":0,"address":"10.9.0.5/24"}]}'`)
	n.write("10-a.conflist", `{"cniVersion": "1.1.0", "name": "`+n.name("a")+`", "plugins": [{"type": "recorder", "args": {"cni": {"old": 1}}, "capabilities":
  {"portMappings": true, "bandwidth": true, "ipRanges": true, "ips": true, "mac": true, "dns": true, "aliases": true, "cgroupPath": true, "infinibandGUID": true, "deviceID": true}}]}`)
	n.Reload()
	p := n.pod("web", podnet.Network{
		Ports:     []podnet.PortMapping{{HostPort: 8080, ContainerPort: 80}, {ContainerPort: 81}},
		Bandwidth: &podnet.Bandwidth{IngressRate: 1e6, EgressRate: 1e9, EgressBurst: 5},
		IPRanges:  [][]podnet.IPRange{{{Subnet: "10.9.0.0/24"}}}, IPs: []string{"10.9.0.5/24"}, MAC: "02:00:00:00:00:01",
		DNS:     &cni.DNS{Nameservers: []string{"10.9.0.1"}, Search: []string{"shop"}},
		Aliases: []string{"www"}, CgroupPath: "/pods/x", InfinibandGUID: "24:8a:07:03:00:8d:ae:2e", DeviceID: "0000:00:1f.6", Args: map[string]any{"new": true},
	})
	p.Args = [][2]string{{"MORE", "1"}}
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	raw, err := os.ReadFile(seen)
	must(t, err)
	args, conf, _ := strings.Cut(string(raw), "\n")
	if want := "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=" + p.ID + ";K8S_POD_UID=u-1;MORE=1"; args != want {
		t.Errorf("CNI_ARGS\n%s, want\n%s", args, want)
	}
	for _, want := range []string{
		`"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`,
		`"bandwidth":{"ingressRate":1000000,"ingressBurst":2097152,"egressRate":1000000000,"egressBurst":5}`,
		`"ipRanges":[[{"subnet":"10.9.0.0/24"}]]`, `"ips":["10.9.0.5/24"]`, `"mac":"02:00:00:00:00:01"`,
		`"dns":{"searches":["shop"],"servers":["10.9.0.1"]}`, `"aliases":["www"]`, `"cgroupPath":"/pods/x"`,
		`"infinibandGUID":"24:8a:07:03:00:8d:ae:2e"`, `"deviceID":"0000:00:1f.6"`, `"args":{"cni":{"old":1,"new":true}}`,
	} {
		if !strings.Contains(conf, want) {
			t.Errorf("not in the configuration: %s\n%s", want, conf)
		}
	}
	must(t, n.TearDownPod(t.Context(), p.ID))
}

// TestIgnoredRequest checks that a pod does not start with another address than it requests.
func TestIgnoredRequest(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.script("deaf", `[ $CNI_COMMAND = ADD ] && exec echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"x","mac":"02:00:00:00:00:02"}],"ips":[{"interface":0,"address":"10.9.0.4/24"}]}'`)
	n.write("10-a.conflist", `{"cniVersion": "1.1.0", "name": "`+n.name("a")+`", "plugins": [{"type": "deaf", "capabilities": {"ips": true, "mac": true}}]}`)
	n.Reload()
	_, err := n.SetUpPod(t.Context(), n.pod("web", podnet.Network{IPs: []string{"10.9.0.4"}}))
	must(t, err)
	_, err = n.SetUpPod(t.Context(), n.pod("db", podnet.Network{IPs: []string{"10.9.0.5/24"}}))
	wants(t, err, "did not give the pod the address 10.9.0.5")
	n.nothingLeft("db")
	_, err = n.SetUpPod(t.Context(), n.pod("db", podnet.Network{MAC: "02:00:00:00:00:01"}))
	wants(t, err, "the hardware address 02:00:00:00:00:02 and not 02:00:00:00:00:01")
}

// TestUnsupported checks that a request that no plugin declares is an error that says what to do, or a warning. Hints
// are neither.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	n.bridge("10-a.conflist", "a", 1, "")
	p := n.pod("web", podnet.Network{InfinibandGUID: "24:8a:07:03:00:8d:ae:2e", Ports: []podnet.PortMapping{{HostPort: 80, ContainerPort: 80}}, Aliases: []string{"x"}, CgroupPath: "/x"})
	_, err := n.SetUpPod(t.Context(), p)
	wants(t, err, `asks for "portMappings", "infinibandGUID"`, `"capabilities": {"portMappings": true}`)
	if !errors.Is(err, podnet.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	n.nothingLeft("web")
	n.options.IgnoreUnsupported = true
	n.again()
	_, err = n.SetUpPod(t.Context(), p)
	must(t, err)
	if w := n.warnings(); !strings.Contains(w, `"portMappings", "infinibandGUID"`) {
		t.Errorf("warned %q", w)
	}
	must(t, n.TearDownPod(t.Context(), p.ID))
}

// TestUndeclaredAddresses checks that a network gives a pod the addresses that it requests although its plugins declare no
// capability, as with Multus, also if they are inside a fairlead-chain. With IgnoreUnsupported, an ignored request is a
// warning.
func TestUndeclaredAddresses(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		n.bridge("10-a.conflist", "a", 1, "")
		n.write("20-b.conflist", fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "plugins": [{"type": "fairlead-chain", "plugins": [
  {"type": "bridge", "bridge": %q, "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.%d.2.0/24"}}]}]}`, n.name("b"), n.link("b"), t.TempDir(), n.n))
		n.script("deaf", `[ $CNI_COMMAND = ADD ] && exec echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"x"}]}'`)
		n.write("30-c.conflist", `{"cniVersion": "1.1.0", "name": "`+n.name("c")+`", "plugins": [{"type": "deaf"}]}`)
		n.Reload()
		for i, name := range []string{"a", "b"} {
			want := fmt.Sprintf("10.%d.%d.77", n.n, i+1)
			p := n.pod("web"+name, podnet.Network{Name: name, IPs: []string{want}, MAC: "02:00:00:00:00:01"})
			_, err := n.SetUpPod(t.Context(), p)
			must(t, err)
			if got := kerneltest.In(t, p.Netns, "ip", "addr", "show", "eth0"); !strings.Contains(got, want+"/") || !strings.Contains(got, "02:00:00:00:00:01") {
				t.Errorf("network %s: %s", name, got)
			}
			must(t, n.CheckPod(t.Context(), p.ID))
			must(t, n.TearDownPod(t.Context(), p.ID))
		}
		deaf := podnet.Network{Name: "c", IPs: []string{"10.9.0.5"}}
		_, err := n.SetUpPod(t.Context(), n.pod("db", deaf))
		wants(t, err, "did not give the pod the address 10.9.0.5")
		n.options.IgnoreUnsupported = true
		n.again()
		_, err = n.SetUpPod(t.Context(), n.pod("db", deaf))
		must(t, err)
		if w := n.warnings(); !strings.Contains(w, "did not give the pod the address 10.9.0.5") {
			t.Errorf("warned %q", w)
		}
	})
}

// TestLabelsReachPlugins checks that the annotation with the pod's labels reaches the plugins of all its networks that
// declare the capability. Network policy did not select such a pod without a word.
func TestLabelsReachPlugins(t *testing.T) {
	t.Parallel()
	p := podnet.Pod{ID: "web", Networks: []podnet.Network{{Name: "a"}, {Name: "b"}}}
	if err := p.Annotate(map[string]string{"fairlead.io/labels": "app=web,tier=front"}); err != nil {
		t.Fatal(err)
	}
	const capability = "io.kubernetes.cri.pod-annotations"
	for _, n := range p.Networks {
		args, err := n.CapabilityArgs(n.Name, []string{capability})
		if text, _ := json.Marshal(args); err != nil || string(text) != `{"`+capability+`":{"fairlead.io/labels":"app=web,tier=front"}}` {
			t.Errorf("network %s: %s, %v", n.Name, text, err)
		}
		if args, err := n.CapabilityArgs(n.Name, nil); err != nil || len(args) > 0 {
			t.Errorf("without the capability: %v, %v", args, err)
		}
	}
}

// TestDefaultRoute checks that the pod's default route is through the network that it requests.
func TestDefaultRoute(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		n.bridge("10-a.conflist", "a", 1, `"isDefaultGateway": true,`)
		n.bridge("20-b.conflist", "b", 2, "")
		n.write("30-c.conflist", `{"cniVersion": "1.1.0", "name": "`+n.name("c")+`", "plugins": [{"type": "ptp"}]}`)
		n.script("routed", `[ $CNI_COMMAND = ADD ] && { echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/8"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1"}]}'; exit; }`)
		n.write("40-d.conflist", `{"cniVersion": "1.1.0", "name": "`+n.name("d")+`", "plugins": [{"type": "routed"}]}`)
		n.Reload()
		gw := n.routedByB(t)

		p := n.pod("other", podnet.Network{}, podnet.Network{Name: "d", DefaultRoute: nil}, podnet.Network{Name: "b", DefaultRoute: []netip.Addr{gw}})
		_, err := n.SetUpPod(t.Context(), p)
		wants(t, err, "network "+n.name("d")+" has a default route by 10.0.0.1")
		p.Networks = []podnet.Network{{}, {Name: n.name("d"), DefaultRoute: []netip.Addr{gw}}}
		_, err = n.SetUpPod(t.Context(), p)
		wants(t, err, "network "+n.name("d")+" cannot be the pod's default route by "+gw.String())
		n.nothingLeft("other")
	})
}

// routedByB sets up a pod on the default network and on b, whose gateway is to be its default route, checks that it is the
// only one, and tears the pod down. It returns the gateway.
func (n *node) routedByB(t *testing.T) netip.Addr {
	t.Helper()
	gw := netip.AddrFrom4([4]byte{10, byte(n.n), 2, 1})
	p := n.pod("web", podnet.Network{}, podnet.Network{Name: "b", DefaultRoute: []netip.Addr{gw}})
	_, err := n.SetUpPod(t.Context(), p)
	must(t, err)
	if got := strings.TrimSpace(kerneltest.In(t, p.Netns, "ip", "route", "show", "default")); !strings.HasPrefix(got, "default via "+gw.String()+" dev net1") || strings.Contains(got, "\n") {
		t.Errorf("default routes:\n%s", got)
	}
	must(t, n.CheckPod(t.Context(), p.ID))
	must(t, n.TearDownPod(t.Context(), p.ID))
	n.nothingLeft("web")
	return gw
}

// TestDefaultRouteOfFusedNetworks checks that a requested default route works with networks that fairlead fuse wrote.
func TestDefaultRouteOfFusedNetworks(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		n := newNode(t, exec)
		for i, name := range []string{"a", "b"} {
			n.write(fmt.Sprintf("%d0-%s.conflist", i+1, name), fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "plugins": [{"type": "fairlead-chain", "plugins": [{"type": "bridge", "bridge": %q,
				"isGateway": true, "isDefaultGateway": %v, "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.%d.%d.0/24"}}, {"type": "tuning"}]}]}`,
				n.name(name), n.link(name), i == 0, filepath.Join(t.TempDir(), "ipam"), n.n, i+1))
		}
		n.Reload()
		n.routedByB(t)
	})
}

// TestInvalidRequestsAreRejected checks that all invalid requests are reported before any change.
func TestInvalidRequestsAreRejected(t *testing.T) {
	t.Parallel()
	n := newNode(t, within)
	p := n.pod("web")
	_, err := n.SetUpPod(t.Context(), p)
	wants(t, err, "no net configurations found in "+n.conf)
	n.bridge("10-a.conflist", "a", 1, "")
	n.write("20-x.conf", `{"cniVersion": "1.0.0", "name": "`+n.name("x")+`", "type": "nothere"}`)
	n.Reload()
	for _, c := range []struct {
		change func(*podnet.Pod)
		want   []string
	}{
		{func(p *podnet.Pod) { p.ID = "a/b" }, []string{"containerID"}},
		{func(p *podnet.Pod) { p.Netns = "/nowhere" }, []string{"there is no network namespace /nowhere"}},
		{func(p *podnet.Pod) { p.Netns = "" }, []string{"has no network namespace"}},
		{func(p *podnet.Pod) { p.Name = "a;b" }, []string{"K8S_POD_NAME"}},
		{func(p *podnet.Pod) { p.Args = [][2]string{{"FOO", "a=b"}} }, []string{`CNI_ARGS: invalid argument "FOO"="a=b"`}},
		{func(p *podnet.Pod) { p.Args = [][2]string{{"F O", "a"}} }, []string{`CNI_ARGS: invalid argument "F O"`}},
		{func(p *podnet.Pod) { p.Args = [][2]string{{"FOO", "a\n"}} }, []string{"CNI_ARGS: invalid argument"}},
		{func(p *podnet.Pod) { p.Args = [][2]string{{"FOO", "a;B=c"}} }, []string{"CNI_ARGS: invalid argument"}},
		{func(p *podnet.Pod) { p.Networks = []podnet.Network{{Name: "none"}, {Name: n.name("x")}} }, []string{`networks[0]: network none: no net configuration with name "none"`, `failed to find plugin "nothere"`}},
		{func(p *podnet.Pod) { p.Networks = []podnet.Network{{}, {IfName: "eth0"}} }, []string{"networks[1]: the interface name eth0 is taken"}},
		{func(p *podnet.Pod) { p.Networks = []podnet.Network{{IfName: "lo"}} }, []string{"the interface name lo is taken"}},
		{func(p *podnet.Pod) {
			p.Networks = []podnet.Network{{IfName: "a-name-too-long-for-it"}, {MAC: "x"}, {IPs: []string{"10.0.0"}}}
		}, []string{"networks[0]: interface name is too long", `networks[1]: mac "x"`, `networks[2]: address "10.0.0"`}},
		{func(p *podnet.Pod) {
			p.Networks = []podnet.Network{{Ports: []podnet.PortMapping{{HostPort: 70000, ContainerPort: 1}, {HostPort: 1, ContainerPort: 1, Protocol: "icmp"}, {HostPort: 1, ContainerPort: 1, HostIP: "x"}}}}
		}, []string{"70000", "icmp", `host address "x"`}},
		{func(p *podnet.Pod) {
			p.Networks = []podnet.Network{{DefaultRoute: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}}}
		}, []string{"at most one gateway of each family"}},
		{func(p *podnet.Pod) {
			one, two := []netip.Addr{netip.MustParseAddr("10.0.0.1")}, []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.1.0.1")}
			p.Networks = []podnet.Network{{DefaultRoute: one}, {DefaultRoute: two}}
		}, []string{"networks[1]: default route: want at most one gateway of each family in all networks of the pod"}},
	} {
		q := p
		c.change(&q)
		_, err := n.SetUpPod(t.Context(), q)
		wants(t, err, c.want...)
	}
	n.nothingLeft("web")
}

// TestOrder checks that of several default routes the last one wins, and that a network that uses another's link comes
// after it, wherever it is listed.
func TestOrder(t *testing.T) {
	both(t, func(t *testing.T, exec func(*podnet.Options)) {
		kerneltest.Needs(t, "macvlan")
		n := newNode(t, exec)
		ways := `"isDefaultGateway": true,`
		n.bridge("10-a.conflist", "a", 1, ways)
		n.bridge("20-b.conflist", "b", 2, ways)
		n.bridge("30-c.conflist", "c", 3, ways)
		n.write("40-d.conflist", `{"cniVersion": "1.1.0", "name": "`+n.name("d")+`", "plugins": [{"type": "macvlan", "master": "net3", "linkInContainer": true}]}`)
		n.Reload()
		p := n.pod("web", podnet.Network{}, podnet.Network{Name: "d"}, podnet.Network{Name: "b"}, podnet.Network{Name: "c"})
		_, err := n.SetUpPod(t.Context(), p)
		must(t, err)
		if got := kerneltest.In(t, p.Netns, "ip", "route", "get", "192.0.2.1"); !strings.Contains(got, "dev net3") {
			t.Errorf("the way out is %s", got)
		}
		if got := n.links(p.Netns); !strings.Contains(got, "net1") {
			t.Errorf("the pod has %s", got)
		}
		must(t, n.CheckPod(t.Context(), p.ID))
		must(t, n.TearDownPod(t.Context(), p.ID))
		n.nothingLeft("web")
	})
}
