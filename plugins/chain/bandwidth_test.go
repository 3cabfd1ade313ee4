package chain

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

// A link without a host end cannot be shaped.
func TestBandwidthWithoutHostEnd(t *testing.T) {
	t.Parallel()
	conf := []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "bandwidth", "egressRate": 1000000}`)
	for _, r := range []*cni.Result{
		{},
		{Interfaces: []cni.Interface{{Name: "cni7"}, {Name: "dev0"}, {Name: "gone"}, {Name: "eth0", Sandbox: "/run/netns/c1"}}},
	} {
		_, err := plugintest.Try(Bandwidth(), conf, r)
		if err == nil || !strings.Contains(err.Error(), "prevResult lists no other end of it") {
			t.Errorf("%v: %v", r.Interfaces, err)
		}
	}
}
