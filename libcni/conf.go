package libcni

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// listConf has the keys of a list that a runtime reads.
type listConf struct {
	CNIVersion             string           `json:"cniVersion"`
	CNIVersions            []string         `json:"cniVersions"`
	Name                   string           `json:"name"`
	DisableCheck           looseBool        `json:"disableCheck"`
	DisableGC              looseBool        `json:"disableGC"`
	LoadOnlyInlinedPlugins looseBool        `json:"loadOnlyInlinedPlugins"`
	Plugins                []cni.PluginConf `json:"plugins"`
}

// looseBool also accepts a string, because specification 0.4.0 defined disableCheck as one. Like the reference library,
// it ignores upper and lower case there.
type looseBool bool

func (b *looseBool) UnmarshalJSON(data []byte) error {
	switch strings.ToLower(string(data)) {
	case "true", `"true"`:
		*b = true
	case "false", `"false"`, "null":
		*b = false
	default:
		return errors.New("want a boolean: true or false")
	}
	return nil
}

// ConfFromBytes reads the configuration of one plugin.
func ConfFromBytes(data []byte) (*NetworkConfig, error) {
	conf := &cni.PluginConf{}
	if err := cni.Decode(data, conf); err != nil {
		return nil, fmt.Errorf("read plugin configuration: %w", err)
	}
	if err := validatePlugin(data, "", conf); err != nil {
		return nil, fmt.Errorf("read plugin configuration: %w", err)
	}
	return &NetworkConfig{Network: conf, Bytes: data}, nil
}

// validatePlugin checks program names and the version. at is the path of the plugin's object in data with a trailing
// dot, or "".
func validatePlugin(data []byte, at string, conf *cni.PluginConf) error {
	if err := cni.ValidatePluginType(conf.Type); err != nil {
		return cni.Invalid(data, at+"type", err.Error())
	}
	if conf.IPAM.Type != "" {
		if err := cni.ValidatePluginType(conf.IPAM.Type); err != nil {
			return cni.Invalid(data, at+"ipam.type", err.Error())
		}
	}
	if _, err := cni.ParseVersion(conf.CNIVersion); err != nil {
		return cni.Invalid(data, at+"cniVersion", err.Error())
	}
	return nil
}

// ConfListFromBytes reads a network list. If it has no key plugins, its plugins are files in a directory next to it,
// which only ConfListFromFile can find.
func ConfListFromBytes(data []byte) (*NetworkConfigList, error) {
	list, err := parseList(data)
	if err != nil {
		return nil, fmt.Errorf("read network list: %w", err)
	}
	return list, nil
}

func parseList(data []byte) (*NetworkConfigList, error) {
	var conf listConf
	if err := cni.Decode(data, &conf); err != nil {
		return nil, err
	}
	if err := cni.ValidateNetworkName(conf.Name); err != nil {
		return nil, cni.Invalid(data, "name", err.Error())
	}
	version, err := cni.Negotiate(data, conf.CNIVersion, conf.CNIVersions)
	if err != nil {
		return nil, err
	}
	plugins, err := inlined(data, &conf)
	if err != nil {
		return nil, err
	}
	return &NetworkConfigList{
		Name:                   conf.Name,
		CNIVersion:             version,
		DisableCheck:           bool(conf.DisableCheck),
		DisableGC:              bool(conf.DisableGC),
		LoadOnlyInlinedPlugins: bool(conf.LoadOnlyInlinedPlugins),
		Plugins:                plugins,
		Bytes:                  data,
	}, nil
}

// inlined returns the plugins in the list itself.
func inlined(data []byte, conf *listConf) ([]*NetworkConfig, error) {
	raw, found := rawjson.Find(data, "plugins")
	switch {
	case !found && bool(conf.LoadOnlyInlinedPlugins):
		return nil, cni.Invalid(data, "plugins", "missing, though loadOnlyInlinedPlugins is true")
	case !found:
		return nil, nil
	case len(conf.Plugins) == 0:
		return nil, cni.Invalid(data, "plugins", "no plugins in list: want at least one")
	}
	conf.Plugins = nil // if the key is repeated, each element has keys of several
	err := cni.Decode(raw.Raw, &conf.Plugins)
	elements, err2 := rawjson.Elements(raw.Raw)
	if err != nil || err2 != nil || len(elements) != len(conf.Plugins) {
		return nil, cni.Invalid(data, "plugins", "want one list of plugins")
	}
	plugins := make([]*NetworkConfig, len(elements))
	for i := range elements {
		if err := validatePlugin(data, fmt.Sprintf("plugins[%d].", i), &conf.Plugins[i]); err != nil {
			return nil, err
		}
		plugins[i] = &NetworkConfig{Network: &conf.Plugins[i], Bytes: elements[i].Raw}
	}
	return plugins, nil
}

// ConfListFromConf returns a list of one plugin.
func ConfListFromConf(original *NetworkConfig) (*NetworkConfigList, error) {
	list, _ := rawjson.ParseObject([]byte("{}"))
	list.SetString("name", original.Network.Name)
	list.SetString("cniVersion", original.Network.CNIVersion)
	list.Set("plugins", slices.Concat([]byte{'['}, original.Bytes, []byte{']'}))
	out, err := ConfListFromBytes(list.Bytes())
	if err == nil {
		out.Plugins[0].origin = original.origin
	}
	return out, err
}

// InjectConf returns a configuration with keys set; other keys stay as written.
func InjectConf(original *NetworkConfig, newValues map[string]any) (*NetworkConfig, error) {
	conf, err := rawjson.ParseObject(original.Bytes)
	if err != nil {
		return nil, fmt.Errorf("inject into plugin configuration: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(newValues)) {
		if key == "" || newValues[key] == nil {
			return nil, fmt.Errorf("inject into plugin configuration: key %q: neither key nor value may be empty", key)
		}
		raw, err := json.Marshal(newValues[key])
		if err != nil {
			return nil, fmt.Errorf("inject into plugin configuration: key %q: %w", key, err)
		}
		conf.Set(key, raw)
	}
	out, err := ConfFromBytes(conf.Bytes())
	if err == nil {
		out.origin = original.origin
	}
	return out, err
}
