// Package needed finds out which plugins a runtime needs to delete attachments.
package needed

import (
	"encoding/json"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/libcni"
)

// Programs are the base names of the programs: the plugins are links to them.
var Programs = []string{"fairlead-cni", "fairlead"}

// Plugins returns the types of the plugins that a runtime calls to delete attachments: those with a part in a record, and
// the others of the networks' lists in confDir.
func Plugins(records []*attach.Record, confDir string) (names []string) {
	networks := map[string]bool{}
	for _, r := range records {
		for _, p := range r.Parts {
			names = append(names, p.Plugin, p.IPAM)
		}
		if networks[r.Network] {
			continue
		}
		networks[r.Network] = true
		list, err := libcni.LoadNetworkConf(confDir, r.Network)
		if err != nil {
			continue // the runtime's copy of it names plugins that have a part here
		}
		for _, p := range list.Plugins {
			names = append(names, TypesIn(p.Bytes)...)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" })
}

// TypesIn is Types for a configuration as JSON. Of one that cannot be read, it returns none.
func TypesIn(raw []byte) []string {
	conf := map[string]any{}
	if json.Unmarshal(raw, &conf) != nil {
		return nil
	}
	return Types(conf)
}

// Types returns the types of a configuration's plugins, of those inside a fairlead-chain or fairlead-pod, and of their
// IPAM plugins.
func Types(conf map[string]any) (names []string) {
	if name, ok := conf["type"].(string); ok {
		names = append(names, name)
	}
	plugins, _ := conf["plugins"].([]any)
	for _, c := range append(plugins, conf["ipam"], conf["delegate"]) {
		if inner, ok := c.(map[string]any); ok {
			names = append(names, Types(inner)...)
		}
	}
	return names
}
