package main

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
)

// What a switch means for a key of a configuration.
const (
	verdictSame    = "same"
	verdictChanges = "changes"
	verdictIgnored = "ignored" // by the reference, too
)

type migratedKey struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // JSON
	Verdict string `json:"verdict"`
	Text    string `json:"text,omitempty"` // what changes
}

// membersOf says of each plugin of a file, and of those dropped in beside it, what
// changes; of what cannot be read, nothing: that is reported besides.
func membersOf(file string) []migratedPlugin {
	out := []migratedPlugin{}
	data, err := os.ReadFile(file)
	if err != nil {
		return out
	}
	if raw, found := rawjson.Find(data, "plugins"); found {
		elements, _ := rawjson.Elements(raw.Raw)
		for _, e := range elements {
			out = append(out, memberOf(e.Raw))
		}
		return out
	}
	if _, err := libcni.ConfFromBytes(data); err == nil {
		out = append(out, memberOf(data))
	}
	return out
}

func memberOf(raw []byte) migratedPlugin {
	var conf map[string]json.RawMessage
	if json.Unmarshal(raw, &conf) != nil {
		return migratedPlugin{Keys: []migratedKey{}}
	}
	m := migratedPlugin{Keys: []migratedKey{}}
	m.Type = text(raw, "type")
	p := declared(m.Type)
	if m.Ours = p != nil; !m.Ours {
		return m
	}
	known := append(keysOf(reflect.TypeOf(p.New()).Elem()), commonKeys()...)
	members, _ := rawjson.Members(raw)
	for _, x := range members {
		key := x.Key
		switch {
		case key == "type" || key == "name" || strings.HasPrefix(key, "cniVersion"):
		case key == "ipam":
			m.Keys = append(m.Keys, addressKeys(conf[key])...)
		default:
			k := migratedKey{Key: key, Value: compact(conf[key]), Verdict: verdictSame}
			if !slices.ContainsFunc(known, func(s string) bool { return strings.EqualFold(s, key) }) {
				k.Verdict, k.Text = verdictIgnored, "ignored, by the reference too: no key of "+m.Type
			}
			m.Keys = append(m.Keys, k)
		}
	}
	for _, c := range changes() {
		if slices.Contains(strings.Fields(c.plugins), m.Type) && c.when(conf) {
			m.change(c, conf)
		}
	}
	return m
}

// change notes a change at its key; one that is absent has its effect by default.
func (m *migratedPlugin) change(c change, conf map[string]json.RawMessage) {
	for i := range m.Keys {
		if m.Keys[i].Key == c.key {
			m.Keys[i].Verdict, m.Keys[i].Text = verdictChanges, "changes: "+c.text
			return
		}
	}
	m.Keys = append(m.Keys, migratedKey{Key: c.key, Value: "(default)", Verdict: verdictChanges, Text: "changes: " + c.text})
}

// commonKeys are those that every plugin may have.
func commonKeys() []string {
	return []string{"name", "cniVersion", "cniVersions", "type", "capabilities", "prevResult", "ipam", "dns", "args", "runtimeConfig"}
}

// keysOf are the names of a configuration's keys, embedded ones too.
func keysOf(t reflect.Type) (out []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[plugin.Conf]():
			out = append(out, keysOf(f.Type)...)
		case name != "" && name != "-":
			out = append(out, name)
		}
	}
	return out
}

// addressKeys are those of ipam, whose plugins know the same keys as the reference's.
func addressKeys(raw json.RawMessage) (out []migratedKey) {
	members, _ := rawjson.Members(raw)
	known := ipamKeys()[text(raw, "type")]
	for _, x := range members {
		k := migratedKey{Key: "ipam." + x.Key, Value: compact(x.Raw), Verdict: verdictSame}
		switch {
		case known == "" && x.Key == "type":
			k.Text = "no plugin of Fairlead's: it stays as it is"
		case known != "" && x.Key != "type" && !slices.Contains(strings.Fields(known), x.Key):
			k.Verdict, k.Text = verdictIgnored, "ignored, by the reference too: no key of "+text(raw, "type")
		}
		out = append(out, k)
	}
	return out
}

// ipamKeys are the keys of the IPAM plugins.
func ipamKeys() map[string]string {
	return map[string]string{
		"host-local": "ranges subnet rangeStart rangeEnd gateway routes resolvConf dataDir",
		"static":     "addresses routes dns",
		"whereabouts": "range range_start range_end exclude ipRanges gateway routes dns addresses network_name enable_overlapping_ranges configuration_path " +
			"datastore etcd_host etcd_username etcd_password etcd_key_file etcd_cert_file etcd_ca_cert_file kubernetes log_file log_level sleep_for_race " +
			"node_slice_size leader_lease_duration leader_renew_deadline leader_retry_period reconciler_cron_expression",
		"fairlead-ipam": "network pool fixed addresses routes dns coolDown",
		"dhcp":          "daemonSocketPath request provide priority routes dhcp4 dhcp6 acceptRA",
	}
}

func text(raw []byte, key string) (s string) {
	v, _ := rawjson.Find(raw, key)
	_ = json.Unmarshal(v.Raw, &s)
	return s
}

func compact(raw []byte) string {
	return strings.Join(strings.Fields(string(raw)), " ")
}

// change is a key that means something else, or has its effect in another way.
type change struct {
	plugins, key string
	when         func(map[string]json.RawMessage) bool
	text         string
}

func is(key, value string) func(map[string]json.RawMessage) bool {
	return func(conf map[string]json.RawMessage) bool { return string(conf[key]) == value }
}

func both(f, g func(map[string]json.RawMessage) bool) func(map[string]json.RawMessage) bool {
	return func(conf map[string]json.RawMessage) bool { return f(conf) && g(conf) }
}

// changes are all that an operator can see of a switch; docs/compatibility.md has what
// only differs in words.
func changes() []change {
	const stays = "; what stands keeps its rules until it is deleted"
	return []change{
		{"bridge ptp", "ipMasq", both(is("ipMasq", "true"), is("ipMasqBackend", "")), "a set in nftables' table inet fairlead, in place of iptables' chains" + stays},
		{"bridge ptp", "ipMasqBackend", both(is("ipMasq", "true"), is("ipMasqBackend", `"nftables"`)), "a set in table inet fairlead, in place of table inet cni_plugins_masquerade" + stays},
		{"bridge ptp", "ipMasqBackend", both(is("ipMasq", "true"), is("ipMasqBackend", `"iptables"`)), "iptables' chains begin with FL-, in place of CNI-" + stays},
		{"portmap", "backend", is("backend", ""), "maps in nftables' table inet fairlead, in place of iptables' chains, unless a key asks for iptables" + stays},
		{"portmap", "backend", is("backend", `"nftables"`), "maps in table inet fairlead, in place of tables cni_hostport" + stays},
		{"portmap", "backend", is("backend", `"iptables"`), "iptables' chains begin with FL-, in place of CNI-" + stays},
		{"firewall", "backend", is("backend", ""), "where firewalld does not rule, a rule is made only where a forward chain drops, in that chain, in place of chains CNI-FORWARD and CNI-ADMIN for all" + stays},
		{"macvlan tap", "args", func(conf map[string]json.RawMessage) bool {
			_, found := rawjson.Find(conf["args"], "cni.mac")
			return found
		}, "cni.mac is obeyed, as with bridge"},
	}
}
