package chain

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugin/plugintest"
	"github.com/fairlead/fairlead/skel"
)

// TestUnknownInterface checks that an address whose interface the result does not have counts as the container's. Old
// versions of the reference library write -1 if they do not know it.
func TestUnknownInterface(t *testing.T) {
	t.Parallel()
	const head = `{"cniVersion": "1.0.0", "name": "n", `
	for p, conf := range map[*plugin.Plugin]string{
		new(Portmap()):  `"type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]}}`,
		new(Firewall()): `"type": "firewall"}`,
		new(SBR()):      `"type": "sbr"}`,
	} {
		plan := func(index *int) string {
			r := plugintest.Result(netip.MustParsePrefix("10.1.0.2/24"))
			r.IPs[0].Interface = index
			list, err := plugintest.Try(*p, []byte(head+conf), r)
			if err != nil || len(list) == 0 {
				t.Errorf("%s: %v, %v", p.Name, list, err)
			}
			return fmt.Sprint(list)
		}
		want := plan(nil)
		for _, index := range []int{-1, -1 << 63, 99} {
			if got := plan(&index); got != want {
				t.Errorf("%s, interface %d: %s, want %s", p.Name, index, got, want)
			}
		}
	}
	for _, index := range []string{"-1", "1", "99"} { // policy applies to it
		c, err := readPolicy(t.Context(), &skel.CmdArgs{StdinData: []byte(head + `"type": "fairlead-policy", "prevResult": {"interfaces": [{"name": "veth1"}],
			"ips": [{"address": "10.0.0.1/24", "interface": ` + index + `}]}}`)}, true)
		if err != nil || !c.applies() {
			t.Errorf("interface %s: policy does not apply: %v", index, err)
		}
	}
}

// TestInterfaceWithoutSandbox checks a result in which the container's interface has no sandbox. As with the reference
// plugins, its name is enough for firewall and sbr.
func TestInterfaceWithoutSandbox(t *testing.T) {
	t.Parallel()
	for _, p := range []plugin.Plugin{Firewall(), SBR()} {
		plan := func(sandbox string) string {
			index, r := 0, plugintest.Result(netip.MustParsePrefix("10.1.0.2/24"))
			r.Interfaces = []cni.Interface{{Name: "eth0", Sandbox: sandbox}}
			r.IPs[0].Interface = &index
			list, err := plugintest.Try(p, []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "`+p.Name+`"}`), r)
			if err != nil || len(list) == 0 {
				t.Errorf("%s, sandbox %q: %v, %v", p.Name, sandbox, list, err)
			}
			return fmt.Sprint(list)
		}
		if got, want := plan(""), plan("/run/netns/c1"); got != want {
			t.Errorf("%s: %s, want %s", p.Name, got, want)
		}
	}
}

// TestInterfaceThatIsNoLink checks that portmap changes no interface that the host does not have, such as the one of a
// virtual machine's socket.
func TestInterfaceThatIsNoLink(t *testing.T) {
	t.Parallel()
	r := plugintest.Result(netip.MustParsePrefix("10.1.0.2/24"))
	r.Interfaces = []cni.Interface{{Name: "vhost0", SocketPath: "/run/x.sock"}, {Name: "eth0", Sandbox: "/run/netns/c1"}}
	list, err := plugintest.Try(Portmap(), []byte(`{"cniVersion": "1.1.0", "name": "n", "type": "portmap", "snat": true,
		"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]}}`), r)
	if text := fmt.Sprint(list); err != nil || !strings.Contains(text, "8080") || strings.Contains(text, "vhost0") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestPolicyAddresses checks for which addresses policy applies: also for the link-local address, by which a container
// reaches its node. Without a record of Fairlead's, the interface counts only if the host forwards its packets.
func TestPolicyAddresses(t *testing.T) {
	kerneltest.Host(t)
	t.Setenv(attach.RootVariable, t.TempDir())
	pair, alone := kerneltest.Netns(t), kerneltest.Netns(t)
	kerneltest.Run(t, "ip", "link", "add", "veth1", "type", "veth", "peer", "name", "eth0", "netns", pair)
	kerneltest.In(t, alone, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
	dir := attach.Open("")
	o := kernel.Owner{Network: "n", ContainerID: "recorded", IfName: "eth0"}
	place, err := dir.Reserve(o)
	if err != nil {
		t.Fatal(err)
	}
	r := dir.New("n", o.ContainerID, o.IfName, pair)
	r.Parts = []attach.Part{{Plugin: "ptp"}}
	if err := errors.Join(dir.Create(r, place), dir.Finish(r, 0)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ id, netns, direct, addresses string }{
		{"recorded", pair, "", "[10.1.0.2 fe80::ff:fe00:1]"},
		{"foreign", pair, "", "[10.1.0.2]"},
		{"foreign", alone, "another project's plugin", "[10.1.0.2]"}, // both ends are in the container
	} {
		p, err := readPolicy(t.Context(), &skel.CmdArgs{ContainerID: c.id, IfName: "eth0", Netns: c.netns, StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-policy", "prevResult": {"cniVersion": "1.0.0",
			"interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "` + c.netns + `"}], "ips": [{"address": "10.1.0.2/24", "interface": 0}]}}`)}, true)
		if err != nil || p.endpoint.Direct != c.direct || fmt.Sprint(p.endpoint.Addresses) != c.addresses {
			t.Errorf("%+v: %+v, %v", c, p, err)
		}
	}
}
