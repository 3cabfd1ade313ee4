package delegate

import (
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	chained "github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/skel"
)

// WithPolicy returns a list with the plugin that waits for network policy at its end. It returns the list unchanged if the
// plugin is in it already.
func WithPolicy(config []byte) ([]byte, error) {
	list, err := rawjson.ParseObject(config)
	if err != nil {
		return nil, cni.Invalid(config, "", "want a list of plugins")
	}
	if err := addPolicy(list); err != nil {
		return nil, err
	}
	return list.Bytes(), nil
}

// addPolicy adds the plugin. It also pins the addresses of containers on links that the host forwards for, because
// policy knows a sender by its address, and sends packets between the ports of a bridge through policy's rules.
func addPolicy(list *rawjson.Object) error {
	members, err := ChainMembers(list.Bytes())
	if err != nil || hasType(members, chained.PolicyType) {
		return err
	}
	if err := edit(list, forPolicy); err != nil {
		return err
	}
	if members, err = ChainMembers(list.Bytes()); err != nil {
		return err
	}
	var plugins [][]byte
	for _, m := range members {
		plugins = append(plugins, m.Raw)
	}
	setPlugins(list, append(plugins, []byte(`{"type": "`+chained.PolicyType+`"}`)))
	return nil
}

// forPolicy sets what policy needs, unless the configuration says something else.
func forPolicy(_ int, plugin *rawjson.Object) error {
	var keys []string
	ipam, hasAddresses := rawjson.Find(plugin.Bytes(), "ipam.type")
	hasAddresses = hasAddresses && len(ipam.Raw) > len(`""`)
	switch plugin.String("type") {
	case "bridge":
		keys = []string{"antiSpoof", "bridgeNetfilter"}
	case "ptp":
		keys = []string{"antiSpoof"}
	case NetworkType:
		keys, hasAddresses = []string{"antiSpoof"}, true // it has an IPAM by default
	}
	if !hasAddresses {
		return nil
	}
	for _, key := range keys {
		if _, set := plugin.Get(key); !set {
			plugin.Set(key, []byte("true"))
		}
	}
	return nil
}

// IsolatedNetwork returns the isolated network that a list attaches a container to, or "".
func IsolatedNetwork(config []byte) string {
	members, _ := ChainMembers(config) // an invalid list attaches nothing
	for _, m := range members {
		if m.Type == NetworkType {
			c, _, _ := network{}.parse(&skel.CmdArgs{StdinData: m.Raw})
			return c.Network
		}
	}
	return ""
}

func hasType(members []ChainMember, pluginType string) bool {
	return slices.ContainsFunc(members, func(m ChainMember) bool { return m.Type == pluginType })
}

// addPolicyLike adds the plugin that waits for network policy to the list of a network that a pod selects, if the node's
// own list has it.
func (c *podCall) addPolicyLike(list *rawjson.Object) error {
	own, err := ChainMembers(c.args.StdinData)
	if err != nil || !hasType(own, chained.PolicyType) {
		return err
	}
	return addPolicy(list)
}
