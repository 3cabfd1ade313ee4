package churn

import (
	"fmt"

	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// network is a network for attachments, and the way to run its plugins.
type network struct {
	list     *libcni.NetworkConfigList
	cni      *libcni.CNIConfig
	ports    int // the first host port; each container has one
	capacity int // number of addresses; 0 means enough for all
}

const chainedPlugins = `{"type": "portmap", "capabilities": {"portMappings": true}},
	{"type": "bandwidth", "ingressRate": 80000000, "egressRate": 80000000}, {"type": "firewall"}, {"type": "tuning", "mtu": 1400}`

// networks returns four networks: one that runs plugin by plugin; the same one fused, with both families; a routed one
// within the runtime's process; and one with fewer addresses than containers.
func networks(dir, bin string) []*network {
	ipam := func(ranges string) string {
		return `"ipam": {"type": "host-local", "dataDir": "` + dir + `/ipam", "ranges": [` + ranges + `]}`
	}
	bridge := func(n int, ranges string) string {
		return fmt.Sprintf(`{"type": "bridge", "bridge": "cni%d", "isGateway": true, "ipMasq": true, %s}`, n, ipam(ranges))
	}
	processes := &killingExec{}
	lists := []struct {
		name, plugins    string
		fused, inProcess bool
		capacity         int
	}{
		{name: "plain", plugins: bridge(0, `[{"subnet": "10.1.0.0/24"}]`) + "," + chainedPlugins},
		{name: "fused", plugins: bridge(1, `[{"subnet": "10.2.0.0/24"}], [{"subnet": "fd02::/64"}]`) + "," + chainedPlugins, fused: true},
		{name: "in-process", plugins: `{"type": "ptp", "ipMasq": true, ` + ipam(`[{"subnet": "10.3.0.0/24"}], [{"subnet": "fd03::/64"}]`) + `}, {"type": "portmap", "capabilities": {"portMappings": true}}`, inProcess: true},
		{name: "small", plugins: bridge(3, `[{"subnet": "10.4.0.0/28"}]`), capacity: 13},
	}
	var out []*network
	for i, l := range lists {
		list, err := libcni.ConfListFromBytes([]byte(`{"cniVersion": "1.1.0", "name": "` + l.name + `", "plugins": [` + l.plugins + `]}`))
		must(err)
		var exec libcni.Exec = processes
		if l.inProcess {
			exec = plugins.In(plugin.Env{})
		}
		if l.fused {
			list = fuse(list)
		}
		out = append(out, &network{list: list, cni: libcni.NewCNIConfigWithCacheDir([]string{bin}, dir+"/cache", exec), ports: 20000 + 1000*i, capacity: l.capacity})
	}
	return out
}

// fuse returns the list with all plugins fused into one.
func fuse(list *libcni.NetworkConfigList) *libcni.NetworkConfigList {
	var raw [][]byte
	for _, p := range list.Plugins {
		raw = append(raw, p.Bytes)
	}
	chain, err := delegate.Fuse(raw)
	must(err)
	conf, err := libcni.ConfFromBytes(chain)
	must(err)
	one := *list
	one.Plugins = []*libcni.NetworkConfig{conf}
	return &one
}
