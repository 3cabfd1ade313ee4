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

// Plugins returns, for each attachment, the types of the plugins that a runtime calls to delete it: those with a part in its
// record, and the others of the network's list in confDir.
func Plugins(records []*attach.Record, confDir string) (names [][]string) {
	lists := map[string][]string{}
	for _, r := range records {
		types, read := lists[r.Network]
		if !read {
			types = typesOfList(confDir, r.Network)
			lists[r.Network] = types
		}
		own := slices.Clone(types)
		for _, p := range r.Parts {
			own = append(own, p.Plugin, p.IPAM)
		}
		names = append(names, own)
	}
	return names
}

// typesOfList returns the types in a network's list. Without a list, the runtime's copy of it names plugins that have parts.
func typesOfList(confDir, network string) (names []string) {
	list, err := libcni.LoadNetworkConf(confDir, network)
	if err != nil {
		return nil
	}
	for _, p := range list.Plugins {
		names = append(names, TypesIn(p.Bytes)...)
	}
	return names
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
