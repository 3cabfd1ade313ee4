package podnet

import (
	"fmt"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
)

// edit changes the plugins of a network's configuration. The result is one self-contained list: the note and the cache
// store it, and a tear-down needs no other file.
func edit(list *libcni.NetworkConfigList, change ...func(*rawjson.Object) error) (*libcni.NetworkConfigList, error) {
	var plugins [][]byte
	for _, p := range list.Plugins {
		o, err := rawjson.ParseObject(p.Bytes)
		for _, c := range change {
			if err == nil {
				err = c(o)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("network %s, plugin %s: %w", list.Name, p.Network.Type, err)
		}
		plugins = append(plugins, o.Bytes())
	}
	return list.WithPlugins(plugins)
}
