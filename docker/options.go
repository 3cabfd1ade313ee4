package docker

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/validate"
)

// kind is the type of an option's value.
type kind int

const (
	text kind = iota
	number
	flag
)

// option is an option of a network type: docker network create -o KEY=VALUE.
type option struct {
	key     string
	plugin  string // the key of the plugin's configuration
	kind    kind
	aliases []string // the keys of Docker's own drivers
}

var mtu = option{"mtu", "mtu", number, []string{"com.docker.network.driver.mtu", "com.docker.network.mtu"}}

// networkType is a type of networks.
type networkType struct {
	name    string
	plugin  string
	options []option
}

const (
	typeBridge  = "bridge"
	typeOVS     = "ovs"
	typeCluster = "cluster"
)

// networkTypes returns the types of networks; the first is the default.
func networkTypes() []networkType {
	parent := option{"parent", "master", text, nil}
	return []networkType{
		{typeBridge, "bridge", []option{
			{"bridge", "bridge", text, []string{"com.docker.network.bridge.name"}},
			{"masquerade", "ipMasq", flag, []string{"com.docker.network.bridge.enable_ip_masquerade"}},
			{"isolate-ports", "portIsolation", flag, nil},
			{"anti-spoof", "antiSpoof", flag, nil},
			{"hairpin", "hairpinMode", flag, nil},
			{"vlan", "vlan", number, nil}, mtu}},
		{"macvlan", "macvlan", []option{parent, {"mode", "mode", text, []string{"macvlan_mode"}}, mtu}},
		{"ipvlan", "ipvlan", []option{parent, {"mode", "mode", text, []string{"ipvlan_mode"}}, mtu}},
		{"vlan", "vlan", []option{parent, {"vlan", "vlanId", number, nil}, mtu}},
		{typeOVS, "ovs", []option{
			{"bridge", "bridge", text, nil}, {"vlan", "vlan", number, nil}, {"vxlan", "vxlanID", number, nil},
			{"socket", "socket_file", text, nil}, {"datapath", "datapathType", text, nil}, mtu}},
		{typeCluster, "", []option{{"network", "network", text, nil}, {"masquerade", "ipMasq", flag, nil}, mtu}},
	}
}

// Options of every network.
const (
	typeKey = "type"
	nameKey = "name"
)

// find returns the option with a key or an alias.
func (t *networkType) find(key string) *option {
	for i := range t.options {
		if o := &t.options[i]; o.key == key || slices.Contains(o.aliases, key) {
			return o
		}
	}
	return nil
}

// keys returns the allowed keys.
func (t *networkType) keys() []string {
	out := []string{nameKey, typeKey}
	for _, o := range t.options {
		out = append(out, o.key)
	}
	slices.Sort(out)
	return out
}

// parse returns the plugin's keys for the options of a user.
func (t *networkType) parse(options map[string]string) (map[string]any, error) {
	out := map[string]any{}
	for key, value := range options {
		if key == typeKey || key == nameKey {
			continue
		}
		o := t.find(key)
		if o == nil {
			return nil, fmt.Errorf("option %q: a network of type %s has no such option: want one of %s", key, t.name, strings.Join(t.keys(), ", "))
		}
		v, err := o.parse(value)
		if err != nil {
			return nil, fmt.Errorf("option %s=%s: %w", key, value, err)
		}
		if _, twice := out[o.plugin]; twice {
			return nil, fmt.Errorf("option %q: the same option is set twice, under different names", key)
		}
		out[o.plugin] = v
	}
	return out, nil
}

// check returns the error of a plugin that rejects the network's options: no container of the network could start.
func (n *network) check() error {
	list, err := n.list(n.example())
	if err != nil {
		return err
	}
	t, err := typeOf(map[string]string{typeKey: n.Type})
	if err != nil {
		return err
	}
	problems := validate.Data(list.Bytes, nil).Problems
	if len(problems) == 0 {
		return nil
	}
	first := problems[0]
	for _, o := range t.options {
		if first.Key != "plugins[0]."+o.plugin {
			continue
		}
		if v, set := n.Plugin[o.plugin]; set {
			return fmt.Errorf("option %s=%v: %s", o.key, v, first.Problem)
		}
		return fmt.Errorf("option %s: %s", o.key, first.Problem)
	}
	return fmt.Errorf("the options of the network: %w", first.Error(""))
}

// example returns an endpoint with an address of each pool.
func (n *network) example() (e endpointInterface) {
	for _, s := range n.Subnets {
		a := s.Pool.Masked().Addr().Next()
		if a == s.Gateway {
			a = a.Next()
		}
		text := netip.PrefixFrom(a, s.Pool.Bits()).String()
		if a.Is4() {
			e.Address = text
		} else {
			e.AddressIPv6 = text
		}
	}
	return e
}

func (o *option) parse(value string) (any, error) {
	switch o.kind {
	case number:
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("want a number")
		}
		return n, nil
	case flag:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("want true or false")
		}
		return b, nil
	}
	if value == "" {
		return nil, fmt.Errorf("want a value")
	}
	return value, nil
}

// typeOf returns the network type that the options ask for.
func typeOf(options map[string]string) (*networkType, error) {
	all := networkTypes()
	asked := options[typeKey]
	if _, set := options[typeKey]; !set {
		asked = all[0].name
	}
	var names []string
	for i := range all {
		if all[i].name == asked {
			return &all[i], nil
		}
		names = append(names, all[i].name)
	}
	return nil, fmt.Errorf("option type=%s: want one of %s", asked, strings.Join(names, ", "))
}

// userOptions returns the options that a user gave with -o.
func userOptions(all map[string]json.RawMessage) (map[string]string, error) {
	raw, ok := all[genericOptions]
	if !ok {
		return nil, nil
	}
	var loose map[string]any
	if err := json.Unmarshal(raw, &loose); err != nil {
		return nil, fmt.Errorf("%s: want an object of strings: %w", genericOptions, err)
	}
	out := map[string]string{}
	for key, v := range loose {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("option %q: want a text, found %v", key, v)
		}
		out[key] = s
	}
	return out, nil
}

// isInternal reports whether a network is created with --internal.
func isInternal(all map[string]json.RawMessage) (is bool, err error) {
	if raw, ok := all[internalOption]; ok {
		if err := json.Unmarshal(raw, &is); err != nil {
			return false, fmt.Errorf("%s: want true or false: %w", internalOption, err)
		}
	}
	return is, nil
}
