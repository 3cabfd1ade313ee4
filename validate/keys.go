package validate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// typos warns of keys that a plugin of this project does not know and that resemble one of its keys. It does not warn of
// other unknown keys: the specification allows them.
func (c *checker) typos(at, kind string, raw []byte) {
	if known := Keys(kind); known != nil {
		c.similar(at, kind, raw, known)
	}
	v, _ := rawjson.Find(raw, "ipam")
	ipam := text(v.Raw, "type")
	if known := IPAMKeys(ipam); known != nil {
		c.similar(below(at, "ipam"), ipam, v.Raw, append(known, "type"))
	}
}

func (c *checker) similar(at, kind string, raw []byte, known []string) {
	members, _ := rawjson.Members(raw)
	for _, m := range members {
		if slices.ContainsFunc(known, func(s string) bool { return strings.EqualFold(s, m.Key) }) {
			continue
		}
		if closest, ok := config.ClosestKey(m.Key, known); ok {
			c.warn(below(at, m.Key), fmt.Sprintf("%s has no such key, so it has no effect: did you mean %q?", kind, closest))
		}
	}
}

// delegatingKeys are the keys of the plugins that are not declarative, so that their structs are not listed.
var delegatingKeys = map[string]string{
	delegate.NetworkType: "network mtu antiSpoof",
	"flannel":            "delegate subnetFile dataDir",
	"minicni":            "bridge subnet mtu",
	"fairlead-chain":     "plugins",
	delegate.PodType:     "plugins confDirs",
	chain.PolicyType:     "labels",
}

// Keys returns the keys that a plugin reads, or nil if it is not a plugin of this project. For an IPAM plugin, see
// IPAMKeys.
func Keys(kind string) []string {
	var own []string
	if p := builtin.Find(kind); p != nil {
		own = keysOf(reflect.TypeOf(p.New()).Elem())
	} else if keys, ok := delegatingKeys[kind]; ok {
		own = strings.Fields(keys)
	} else {
		return nil
	}
	return append(own, commonKeys()...)
}

// commonKeys returns the keys that every plugin may have.
func commonKeys() []string {
	return []string{"name", "cniVersion", "cniVersions", "type", "capabilities", "prevResult", "ipam", "dns", "args", "runtimeConfig"}
}

// keysOf returns the keys of a configuration, those of embedded structs included.
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

// IPAMKeys returns the keys of an IPAM plugin, or nil if it is not one of this project.
func IPAMKeys(kind string) []string {
	keys := map[string]string{
		"host-local": "ranges subnet rangeStart rangeEnd gateway routes resolvConf dataDir",
		"static":     "addresses routes dns",
		"whereabouts": "range range_start range_end exclude ipRanges gateway routes dns addresses network_name enable_overlapping_ranges configuration_path " +
			"datastore etcd_host etcd_username etcd_password etcd_key_file etcd_cert_file etcd_ca_cert_file kubernetes log_file log_level sleep_for_race " +
			"node_slice_size leader_lease_duration leader_renew_deadline leader_retry_period reconciler_cron_expression",
		"fairlead-ipam": "network pool fixed addresses routes defaultRoute dns coolDown",
		"dhcp":          "daemonSocketPath request provide priority routes dhcp4 dhcp6 acceptRA",
	}[kind]
	if keys == "" {
		return nil
	}
	return strings.Fields(keys)
}
