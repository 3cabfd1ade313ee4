package migrate

import (
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/validate"
)

// The effects of a switch on a key of a configuration.
const (
	VerdictSame    = "same"
	VerdictChanges = "changes"
	VerdictIgnored = "ignored" // the reference plugin ignores it, too
)

// List is a configuration, and what a switch changes in it.
type List struct {
	validate.Report
	Members []Plugin `json:"members"`
}

// Plugin is a plugin of a configuration.
type Plugin struct {
	Type string `json:"type"`
	Ours bool   `json:"ours"` // Fairlead has a plugin of this type
	Keys []Key  `json:"keys"`
}

// Key is a key of a plugin's configuration.
type Key struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // JSON
	Verdict string `json:"verdict"`
	Text    string `json:"text,omitempty"` // what changes
}

// Lists examines configuration files. PluginDirs are the directories of CNI_PATH.
func Lists(files, pluginDirs []string) (all []List) {
	for _, r := range validate.Files(files, pluginDirs) {
		all = append(all, List{r, membersOf(r.File)})
	}
	return all
}

// membersOf returns the plugins of a file. It skips what it cannot read: the validation reports that.
func membersOf(file string) []Plugin {
	out := []Plugin{}
	data, err := os.ReadFile(file)
	if err != nil {
		return out
	}
	if raw, found := rawjson.Find(data, "plugins"); found {
		elements, _ := rawjson.Elements(raw.Raw)
		for _, e := range elements {
			out = append(out, pluginOf(e.Raw))
		}
		return out
	}
	if _, err := libcni.ConfFromBytes(data); err == nil {
		out = append(out, pluginOf(data))
	}
	return out
}

func pluginOf(raw []byte) Plugin {
	m := Plugin{Keys: []Key{}}
	var conf map[string]json.RawMessage
	if json.Unmarshal(raw, &conf) != nil {
		return m
	}
	m.Type = text(raw, "type")
	p := builtin.Find(m.Type)
	if m.Ours = p != nil; !m.Ours {
		return m
	}
	known := validate.Keys(p.Name)
	members, _ := rawjson.Members(raw)
	for _, x := range members {
		key := x.Key
		switch {
		case key == "type" || key == "name" || strings.HasPrefix(key, "cniVersion"):
		case key == "ipam":
			m.Keys = append(m.Keys, ipamKeys(conf[key])...)
		default:
			k := Key{Key: key, Value: compact(conf[key]), Verdict: VerdictSame}
			if !knows(known, key) {
				k.Verdict, k.Text = VerdictIgnored, "ignored, by the reference plugin too: "+m.Type+" has no such key"
			}
			m.Keys = append(m.Keys, k)
		}
	}
	for _, c := range changes() {
		if slices.Contains(strings.Fields(c.plugins), m.Type) && c.when(conf) {
			m.addChange(c)
		}
	}
	return m
}

// addChange adds a change to its key. A key that the configuration lacks has its default value.
func (m *Plugin) addChange(c change) {
	for i := range m.Keys {
		if m.Keys[i].Key == c.key {
			m.Keys[i].Verdict, m.Keys[i].Text = VerdictChanges, "changes: "+c.text
			return
		}
	}
	m.Keys = append(m.Keys, Key{Key: c.key, Value: "(default)", Verdict: VerdictChanges, Text: "changes: " + c.text})
}

// ipamKeys returns the keys of ipam. Our IPAM plugins know the same keys as the reference plugins.
func ipamKeys(raw json.RawMessage) (out []Key) {
	members, _ := rawjson.Members(raw)
	kind := text(raw, "type")
	known := validate.IPAMKeys(kind)
	for _, x := range members {
		k := Key{Key: "ipam." + x.Key, Value: compact(x.Raw), Verdict: VerdictSame}
		switch {
		case known == nil && x.Key == "type":
			k.Text = "not a plugin of Fairlead: it stays as it is"
		case known != nil && x.Key != "type" && !knows(known, x.Key):
			k.Verdict, k.Text = VerdictIgnored, "ignored, by the reference plugin too: "+kind+" has no such key"
		}
		out = append(out, k)
	}
	return out
}

// knows reports whether a list has a key. As for the reference plugins, the case does not matter.
func knows(list []string, key string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, key) })
}

func text(raw []byte, key string) (s string) {
	v, _ := rawjson.Find(raw, key)
	_ = json.Unmarshal(v.Raw, &s)
	return s
}

func compact(raw []byte) string {
	return strings.Join(strings.Fields(string(raw)), " ")
}
