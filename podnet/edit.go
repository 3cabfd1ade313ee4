package podnet

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/podnet/request"
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

// inMembers applies a change to the plugins inside a fairlead-chain instead of the chain, and to any other plugin.
func inMembers(change func(*rawjson.Object) error) func(*rawjson.Object) error {
	return func(plugin *rawjson.Object) error {
		inside := members(plugin.Bytes())
		if inside == nil {
			return change(plugin)
		}
		for i, raw := range inside {
			o, err := rawjson.ParseObject(raw)
			if err == nil {
				err = change(o)
			}
			if err != nil {
				return fmt.Errorf("plugins[%d]: %w", i, err)
			}
			inside[i] = o.Bytes()
		}
		plugin.SetArray("plugins", inside)
		return nil
	}
}

// inFirst applies a change to the first plugin that it gets, and to the first plugin inside if that is a fairlead-chain.
func inFirst(change func(*rawjson.Object) error) func(*rawjson.Object) error {
	done := false
	once := func(plugin *rawjson.Object) error {
		if done {
			return nil
		}
		done = true
		return change(plugin)
	}
	return func(plugin *rawjson.Object) error {
		if !done && members(plugin.Bytes()) != nil {
			if err := change(plugin); err != nil {
				return err
			}
		}
		return inMembers(once)(plugin)
	}
}

// members returns the configurations of the plugins inside a fairlead-chain, or nil if it is another plugin.
func members(plugin []byte) (inside [][]byte) {
	var head struct{ Type string }
	if err := rawjson.Decode(plugin, &head); err != nil || head.Type != request.ChainType {
		return nil
	}
	raw, _ := rawjson.Find(plugin, "plugins")
	elements, _ := rawjson.Elements(raw.Raw) // the chain rejects a value that is not a list
	for _, e := range elements {
		inside = append(inside, e.Raw)
	}
	return inside
}

// each calls f for every plugin of a network, also inside a fairlead-chain, until it returns true, and reports that.
func each(list *libcni.NetworkConfigList, f func(plugin []byte) bool) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.NetworkConfig) bool {
		return slices.ContainsFunc(append(members(p.Bytes), p.Bytes), f)
	})
}
