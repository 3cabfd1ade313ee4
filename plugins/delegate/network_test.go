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
