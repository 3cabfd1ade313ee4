package migrate

import (
	"encoding/json"

	"github.com/fairlead/fairlead/cni/rawjson"
)

// change is a key that has another meaning in Fairlead, or the same effect in another way.
type change struct {
	plugins, key string
	when         func(map[string]json.RawMessage) bool
	text         string
}

// hasValue returns a condition: the key has a value in JSON; "" is an absent key.
func hasValue(key, value string) func(map[string]json.RawMessage) bool {
	return func(conf map[string]json.RawMessage) bool { return string(conf[key]) == value }
}

func both(f, g func(map[string]json.RawMessage) bool) func(map[string]json.RawMessage) bool {
	return func(conf map[string]json.RawMessage) bool { return f(conf) && g(conf) }
}

// changes returns everything that an operator can see of a switch. Differences in messages are in docs/compatibility.md.
func changes() []change {
	const stays = "; existing attachments keep their rules until they are deleted"
	masquerades := hasValue("ipMasq", "true")
	return []change{
		{"bridge ptp", "ipMasq", both(masquerades, hasValue("ipMasqBackend", "")), "a set in the nftables table inet fairlead replaces iptables chains" + stays},
		{"bridge ptp", "ipMasqBackend", both(masquerades, hasValue("ipMasqBackend", `"nftables"`)), "a set in the table inet fairlead replaces the table inet cni_plugins_masquerade" + stays},
		{"bridge ptp", "ipMasqBackend", both(masquerades, hasValue("ipMasqBackend", `"iptables"`)), "the names of iptables chains begin with FL-, not CNI-" + stays},
		{"portmap", "backend", hasValue("backend", ""), "maps in the nftables table inet fairlead replace iptables chains, unless a key asks for iptables" + stays},
		{"portmap", "backend", hasValue("backend", `"nftables"`), "maps in the table inet fairlead replace the tables cni_hostport" + stays},
		{"portmap", "backend", hasValue("backend", `"iptables"`), "the names of iptables chains begin with FL-, not CNI-" + stays},
		{"firewall", "backend", hasValue("backend", ""), "without firewalld, the chains CNI-FORWARD and CNI-ADMIN are only used if iptables' FORWARD chain may drop packets or the administrator's chain is in use" + stays},
		{"macvlan tap", "args", func(conf map[string]json.RawMessage) bool {
			_, found := rawjson.Find(conf["args"], "cni.mac")
			return found
		}, "cni.mac is used, as by bridge"},
	}
}
