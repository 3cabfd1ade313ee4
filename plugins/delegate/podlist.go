package delegate

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
)

// listOf returns the list of plugins in a configuration, which may be a single plugin. It has a name and a version, and
// no keys for the runtime. name is the name of a configuration without one.
func listOf(config []byte, name string) (list *rawjson.Object, err error) {
	from, err := rawjson.ParseObject(config)
	if err != nil {
		return nil, cni.Invalid(config, "", "want the configuration of a plugin or of a list of plugins")
	}
	plugins, err := pluginsOf(config)
	if err != nil {
		return nil, err
	}
	list, _ = rawjson.ParseObject([]byte("{}"))
	version, err := versionOf(config)
	if err != nil {
		return nil, err
	}
	if own := from.String("name"); own != "" {
		name = own
	}
	if err := cni.ValidateNetworkName(name); err != nil {
		return nil, err
	}
	list.SetString("cniVersion", version)
	list.SetString("name", name)
	setPlugins(list, plugins)
	_, err = ChainMembers(list.Bytes())
	return list, err
}

// versionOf returns the version of a list that a runtime would choose.
func versionOf(config []byte) (string, error) {
	var conf struct {
		CNIVersion  string   `json:"cniVersion"`
		CNIVersions []string `json:"cniVersions"`
	}
	if err := cni.Decode(config, &conf); err != nil {
		return "", err
	}
	return cni.Negotiate(config, conf.CNIVersion, conf.CNIVersions)
}

func setPlugins(list *rawjson.Object, plugins [][]byte) {
	list.SetArray("plugins", plugins)
}

// pluginsOf returns the plugins of a configuration. A fairlead-chain or fairlead-pod counts as the plugins inside it.
func pluginsOf(config []byte) (out [][]byte, err error) {
	raw, isList := rawjson.Find(config, "plugins")
	var head struct{ Type string }
	_ = rawjson.Decode(config, &head) // a list has no type
	if !isList || head.Type != "" && head.Type != ChainType && head.Type != PodType {
		return [][]byte{config}, nil
	}
	elements, err := rawjson.Elements(raw.Raw)
	if err != nil || len(elements) == 0 {
		return nil, cni.Invalid(config, "plugins", "want the plugins of the list, at least one")
	}
	for _, e := range elements {
		inside, err := pluginsOf(e.Raw)
		if err != nil {
			return nil, err
		}
		out = append(out, inside...)
	}
	return out, nil
}

// defaultList returns the default network's list from the plugin's own configuration. As in a chain, its members get
// every key that is not the plugin's own.
func defaultList(data []byte) (*rawjson.Object, error) {
	own, err := rawjson.ParseObject(data)
	if err != nil {
		return nil, cni.Invalid(data, "", "want an object")
	}
	list, err := listOf(data, "")
	if err != nil {
		return nil, err
	}
	for key, raw := range own.All() {
		if !slices.Contains([]string{"type", "capabilities", "runtimeConfig", "confDirs", "prevResult", "plugins", "name", "cniVersion"}, key) {
			list.Set(key, raw)
		}
	}
	return list, nil
}

// edit changes each plugin of a list. The position is that of the plugin.
func edit(list *rawjson.Object, changes ...func(position int, plugin *rawjson.Object) error) error {
	members, err := ChainMembers(list.Bytes())
	if err != nil {
		return err
	}
	plugins := make([][]byte, len(members))
	for i, m := range members {
		o, err := rawjson.ParseObject(m.Raw)
		for _, change := range changes {
			if err == nil {
				err = change(i, o)
			}
		}
		if err != nil {
			return err
		}
		plugins[i] = o.Bytes()
	}
	setPlugins(list, plugins)
	return nil
}

// withDevice gives each plugin of a list a device, under the names that plugins have for it, as Multus does.
func withDevice(id string) func(int, *rawjson.Object) error {
	return func(_ int, plugin *rawjson.Object) error {
		if id == "" {
			return nil
		}
		for _, key := range []string{"deviceID", "pciBusID"} {
			if _, ok := plugin.Get(key); !ok {
				plugin.SetString(key, id)
			}
		}
		return nil
	}
}

// isTrue reports whether a key of a configuration is true. Runtimes also accept the text "true".
func isTrue(config []byte, key string) bool {
	v, ok := rawjson.Find(config, key)
	return ok && strings.EqualFold(strings.Trim(string(v.Raw), `"`), "true")
}

// declared returns the capabilities that the plugins of a list enable.
func declared(list *rawjson.Object) (out []string, err error) {
	members, err := ChainMembers(list.Bytes())
	for _, m := range members {
		for _, name := range m.Capabilities() {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out, err
}

// narrowed returns the arguments of the declared capabilities: those of more, and of from what more lacks.
func narrowed(from *rawjson.Object, more map[string]any, declared []string) (json.RawMessage, error) {
	out, _ := rawjson.ParseObject([]byte("{}"))
	for _, name := range declared {
		if v, ok := more[name]; ok {
			raw, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			out.Set(name, raw)
		} else if raw, ok := from.Get(name); ok {
			out.Set(name, raw)
		}
	}
	if out.Len() == 0 {
		return nil, nil
	}
	return out.Bytes(), nil
}

// FusePod returns a list with its plugins inside a fairlead-pod. A list that has one already is returned unchanged.
func FusePod(list []byte) ([]byte, error) { return inside(PodType, list, PodAnnotations) }

// FuseChain returns a list with its plugins inside a fairlead-chain. A list of one plugin, or with a fairlead-chain or
// fairlead-pod, is returned unchanged.
func FuseChain(list []byte) ([]byte, error) { return inside(ChainType, list) }

// inside returns a list with its plugins inside one of the given type, which has more capabilities than they.
func inside(pluginType string, list []byte, more ...string) ([]byte, error) {
	whole, err := rawjson.ParseObject(list)
	if err != nil {
		return nil, cni.Invalid(list, "", "want a list of plugins")
	}
	raw, _ := whole.Get("plugins")
	elements, err := rawjson.Elements(raw)
	if err != nil || len(elements) == 0 {
		return nil, cni.Invalid(list, "plugins", "want the plugins of the list, at least one")
	}
	if pluginType == ChainType && len(elements) == 1 {
		return list, nil
	}
	for _, e := range elements {
		o, err := rawjson.ParseObject(e.Raw)
		if err == nil && slices.Contains([]string{pluginType, PodType}, o.String("type")) {
			return list, nil
		}
	}
	plugins, err := pluginsOf(list)
	if err != nil {
		return nil, err
	}
	outer, err := around(pluginType, plugins, more...)
	if err != nil {
		return nil, err
	}
	setPlugins(whole, [][]byte{outer})
	return whole.Bytes(), nil
}
