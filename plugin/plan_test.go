package plugin_test

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

func declared(t *testing.T, name string) plugin.Plugin {
	t.Helper()
	for _, p := range plugins.Declarative() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no plugin %s", name)
	return plugin.Plugin{}
}

// TestPlan plans a bridge and then a portmap; nothing of it exists. The portmap plan must use the planned bridge.
func TestPlan(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	netns, run := kerneltest.Netns(t), t.TempDir()
	before := kerneltest.Dump(t, "") + kerneltest.Dump(t, netns)
	env := plugin.Env{IPAM: plugins.IPAM(), Root: run}
	args := func(conf string) *skel.CmdArgs {
		return &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Netns: netns, StdinData: []byte(conf)}
	}
	first, err := declared(t, "bridge").Plan(context.Background(), args(`{"cniVersion": "1.0.0", "name": "n", "type": "bridge",
		"bridge": "br7", "isGateway": true, "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}]}}`), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ip := first.Result.IPs[0]; ip.Address != netip.MustParsePrefix("10.1.0.5/24") || ip.Gateway != netip.MustParseAddr("10.1.0.1") || *ip.Interface != 2 {
		t.Errorf("result: %+v", first.Result)
	}
	prev, err := wire.EncodeValue(first.Result, "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	second, err := declared(t, "portmap").Plan(context.Background(), args(`{"cniVersion": "1.0.0", "name": "n", "type": "portmap",
		"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80}]}, "prevResult": `+string(prev)+`}`), env, first.Objects)
	if err != nil {
		t.Fatal(err)
	}
	text := lines(first.Objects) + lines(second.Objects)
	for _, want := range []string{
		"host: ip link add br7 ", "container: ip addr add 10.1.0.5/24 dev eth0\n", "host: ip addr add 10.1.0.1/24 dev br7\n",
		"host: sysctl -w net.ipv4.conf.br7.route_localnet=1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if after := kerneltest.Dump(t, "") + kerneltest.Dump(t, netns); after != before {
		t.Errorf("planning changed something: %s\nbefore: %s", after, before)
	}
	if entries, err := os.ReadDir(run); err != nil || len(entries) > 0 {
		t.Errorf("planning wrote a record: %v, %v", entries, err)
	}
}

func lines(list kernel.Objects) string {
	s := ""
	for _, o := range list {
		s += o.Side().String() + ": " + o.String() + "\n"
	}
	return s
}

// TestPlanDoesNotRunUnknownIPAM checks that the plan names an external IPAM plugin and does not run it.
func TestPlanDoesNotRunUnknownIPAM(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	p, err := declared(t, "bridge").Plan(context.Background(), &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Netns: kerneltest.Netns(t),
		StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {"type": "other"}}`)}, plugin.Env{IPAM: plugins.IPAM()}, nil)
	if err != nil || p.UnknownIPAM != "other" || len(p.Result.IPs) > 0 || !strings.Contains(lines(p.Objects), "ip link add cni0") {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, conf, key string }{
		{"bridge", `{"vlan": 2}`, ""},
		{"bridge", `{"vlan": 5000}`, "vlan"},
		{"bridge", `{"mtu": true}`, "mtu"},
		{"bridge", `{"ipam": {"type": "host-local", "subnet": "10.0.0.0/33"}}`, "ipam.subnet"},
		{"bridge", `{"ipam": {"type": "static", "addresses": [{"gateway": "10.0.0.1"}]}}`, "ipam.addresses[0].address"},
		{"bridge", `{"ipam": {"type": "other", "subnet": 7}}`, ""},
		{"host-device", `{}`, "device"},
		{"host-device", `{"device": "none"}`, ""}, // only a host can tell whether the device exists
		{"portmap", `{"markMasqBit": 32}`, "markMasqBit"},
		{"portmap", `{}`, ""},
		{"portmap", `{"cniVersion": "1.0.0", "prevResult": {"ips": [{"address": "x"}]}}`, "prevResult.ips[0].address"},
		{"portmap", `{"cniVersion": "1.0.0", "prevResult": 5}`, "prevResult"},
	} {
		err := declared(t, c.name).Validate([]byte(c.conf), plugin.Env{IPAM: plugins.IPAM()})
		var e *cni.ConfigError
		if err != nil {
			e, _ = err.(*cni.ConfigError)
		}
		if c.key == "" && err != nil || c.key != "" && (e == nil || e.Key != c.key) {
			t.Errorf("%s %s: got %v, want a problem with %q", c.name, c.conf, err, c.key)
		}
	}
}
