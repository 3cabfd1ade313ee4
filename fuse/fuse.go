// Package fuse replaces the plugins of a network list by one plugin, fairlead-chain, that runs all of them in one process.
package fuse

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugins/delegate"
	"github.com/fairlead/fairlead/validate"
)

// Read reads and validates a list. PluginDirs are the directories of CNI_PATH.
func Read(file string, pluginDirs []string) (*libcni.NetworkConfigList, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if json.Valid(data) && !netconf.IsList(file, data) {
		return nil, fmt.Errorf("%s configures one plugin, so there is nothing to fuse: want a list (.conflist)", file)
	}
	if err := validate.Problems(file, pluginDirs); err != nil {
		return nil, err
	}
	list, err := libcni.ConfListFromBytes(data)
	if err == nil && len(list.Plugins) == 0 {
		err = fmt.Errorf("%s has no plugins except those in drop-in files, so there is nothing to fuse", file)
	}
	return list, err
}

// Fuse returns the list with one fairlead-chain in place of its plugins.
func Fuse(list *libcni.NetworkConfigList) ([]byte, error) {
	var plugins [][]byte
	for i, p := range list.Plugins {
		if p.Network.Type == delegate.ChainType {
			return nil, cni.Invalid(list.Bytes, fmt.Sprintf("plugins[%d].type", i), "the list is fused already; --undo restores it")
		}
		if p.Network.Type == delegate.PodType {
			return nil, cni.Invalid(list.Bytes, fmt.Sprintf("plugins[%d].type", i), delegate.PodType+" runs its plugins in one process already")
		}
		plugins = append(plugins, p.Bytes)
	}
	chain, err := delegate.Fuse(plugins)
	if err != nil {
		return nil, err
	}
	return withPlugins(list, [][]byte{chain})
}

// Undo returns the list with the plugins of each fairlead-chain in place of the chain. It returns a list without one unchanged.
func Undo(list *libcni.NetworkConfigList) ([]byte, error) {
	for i, p := range list.Plugins {
		if p.Network.Type == delegate.PodType {
			return nil, cni.Invalid(list.Bytes, fmt.Sprintf("plugins[%d].type", i), delegate.PodType+" also attaches the networks that pods select, so its plugins cannot replace it")
		}
	}
	if !slices.ContainsFunc(list.Plugins, func(p *libcni.NetworkConfig) bool { return p.Network.Type == delegate.ChainType }) {
		return list.Bytes, nil
	}
	members, err := netconf.Members(list)
	if err != nil {
		return nil, err
	}
	var plugins [][]byte
	for _, p := range members {
		plugins = append(plugins, p.Bytes)
	}
	return withPlugins(list, plugins)
}

func withPlugins(list *libcni.NetworkConfigList, plugins [][]byte) ([]byte, error) {
	conf, err := rawjson.ParseObject(list.Bytes)
	if err != nil {
		return nil, err
	}
	conf.SetArray("plugins", plugins)
	var out bytes.Buffer
	if err := json.Indent(&out, conf.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
