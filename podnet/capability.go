package podnet

import (
	"slices"

	"github.com/fairlead/fairlead/libcni"
)

// capabilities returns the capabilities that the plugins of a network declare.
func capabilities(list *libcni.NetworkConfigList) (out []string) {
	for _, p := range list.Plugins {
		for c, enabled := range p.Network.Capabilities {
			if enabled && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	slices.Sort(out)
	return out
}
