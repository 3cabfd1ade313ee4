package delegate

import (
	"context"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/address/local"
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

// TestRemoveWithInvalidConfiguration checks that a DEL proceeds as long as the configuration names the network.
func TestRemoveWithInvalidConfiguration(t *testing.T) {
	t.Parallel()
	for conf, want := range map[string]bool{
		`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-net", "network": "never-made"}`:                 true,
		`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-net", "network": "never-made", "ipam": "none"}`: true,
		`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-net"}`:                                          false,
		`{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-net", "network": 7}`:                            false,
	} {
		called := false
		err := network{}.within(t.Context(), &skel.CmdArgs{ContainerID: "c", IfName: "eth0", StdinData: []byte(conf)}, func(context.Context) error {
			called = true
			return nil
		})
		if called != want || (err == nil) != want {
			t.Errorf("%s: called: %v, %v", conf, called, err)
		}
	}
}
