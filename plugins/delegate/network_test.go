package delegate

import (
	"context"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/plugin"
	chained "github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/skel"
)

// InNetwork returns the ptp configuration also on a host that has nothing of the network yet.
func TestInNetwork(t *testing.T) {
	t.Parallel()
	conf := func(network string) *skel.CmdArgs {
		return &skel.CmdArgs{ContainerID: "c", IfName: "eth0", StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-net", "network": "` + network + `", "mtu": 1400}`)}
	}
	got := ""
	path, err := InNetwork(context.Background(), conf("never-made"), func(_ context.Context, args *skel.CmdArgs) error {
		got = string(args.StdinData)
		return nil
	})
	if err != nil || path != local.NetnsPath("never-made") {
		t.Errorf("%q, %v", path, err)
	}
	for _, want := range []string{`"type":"ptp"`, `"mtu":1400`, `"network":"never-made"`, `"type":"fairlead-ipam"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	_, err = InNetwork(context.Background(), conf("a/b"), func(context.Context, *skel.CmdArgs) error { t.Error("a bad name is used"); return nil })
	if err == nil {
		t.Error("a bad name is accepted")
	}
}

// DEL of a container that ADD refused has nothing to do, and does not depend on what ADD refused.
func TestDelOfRefusedConfiguration(t *testing.T) {
	t.Parallel()
	exec := &plugin.Exec{}
	for _, tt := range []struct {
		plugin skel.Plugin
		keys   string
	}{
		{Network(exec), ``},
		{Network(exec), `, "network": 7`},
		{Network(exec), `, "network": "never-made", "ipam": "none"`},
		{Chain(exec), `, "plugins": 5`},
		{Chain(exec), `, "plugins": [{"type": "a/b"}], "runtimeConfig": 5, "args": 5`},
		{Pod(exec), `, "plugins": [], "runtimeConfig": 5`},
		{Pod(exec), `, "plugins": [{"type": "fairlead-pod"}], "confDirs": "here"`},
		{chained.Policy(), `, "labels": 5, "prevResult": {"cniVersion": "1.0.0"}`},
	} {
		args := &skel.CmdArgs{ContainerID: "refused", IfName: "eth0", Netns: "/proc/self/ns/net",
			StdinData: []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "` + tt.plugin.Name + `"` + tt.keys + `}`)}
		if _, err := tt.plugin.Funcs.Add(t.Context(), args); err == nil {
			t.Errorf("%s: ADD accepts %s", tt.plugin.Name, tt.keys)
		}
		if err := tt.plugin.Funcs.Del(t.Context(), args); err != nil {
			t.Errorf("%s: DEL of %s: %v", tt.plugin.Name, tt.keys, err)
		}
	}
}
