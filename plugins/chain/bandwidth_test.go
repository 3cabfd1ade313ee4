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

// TestEmptySubnet checks that an empty subnet is an error. A filter for it would match every packet.
func TestEmptySubnet(t *testing.T) {
	t.Parallel()
	for conf, want := range map[string]string{
		`"egressRate": 1000000, "shapedSubnets": ["10.0.0.0/8", ""]`:                     `shapedSubnets[1] = "": want a subnet`,
		`"egressRate": 1000000, "unshapedSubnets": [null]`:                               `unshapedSubnets[0] = null: want a subnet`,
		`"runtimeConfig": {"bandwidth": {"egressRate": 1000000, "shapedSubnets": [""]}}`: `runtimeConfig.bandwidth.shapedSubnets[0] = "": want a subnet`,
	} {
		_, err := plugintest.Try(Bandwidth(), []byte(`{"cniVersion": "1.0.0", "name": "n", "type": "bandwidth", `+conf+`}`), &cni.Result{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", conf, err, want)
		}
	}
}
