package delegate

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/podnet/request"
)

// ChainMember is one plugin of a chain, with its configuration as written.
type ChainMember struct {
	Type string
	Raw  []byte

	capabilities map[string]bool
	path         string
}

// ChainMembers returns the plugins in a chain's configuration. An error contains the key, below "plugins", and its
// index.
func ChainMembers(data []byte) ([]ChainMember, error) {
	raw, found := rawjson.Find(data, "plugins")
	elements, err := rawjson.Elements(raw.Raw)
	if !found || err != nil || len(elements) == 0 {
		return nil, cni.Invalid(data, "plugins", "want the plugins of the list, at least one")
	}
	members := make([]ChainMember, len(elements))
	for i, e := range elements {
		at := fmt.Sprintf("plugins[%d]", i)
		var head struct {
			Type         string          `json:"type"`
			Capabilities map[string]bool `json:"capabilities"`
		}
		if err := cni.Decode(e.Raw, &head); err != nil {
			return nil, cni.Invalid(data, at, "want the configuration of a plugin: "+err.Error())
		}
		switch err := cni.ValidatePluginType(head.Type); {
		case err != nil:
			return nil, cni.Invalid(data, at+".type", err.Error())
		case head.Type == ChainType:
			return nil, cni.Invalid(data, at+".type", "a chain cannot contain a chain: list its plugins here")
		case head.Type == PodType:
			return nil, cni.Invalid(data, at+".type", "a "+PodType+" cannot be inside another plugin: list its plugins here")
		}
		members[i] = ChainMember{Type: head.Type, Raw: e.Raw, capabilities: head.Capabilities}
	}
	return members, nil
}

// Capabilities returns the capabilities that a plugin's configuration enables, sorted.
func Capabilities(data []byte) ([]string, error) {
	var head struct {
		Capabilities map[string]bool `json:"capabilities"`
	}
	err := cni.Decode(data, &head)
	return enabled(head.Capabilities), err
}

// Capabilities returns the capabilities that the member enables, sorted.
func (m *ChainMember) Capabilities() []string { return enabled(m.capabilities) }

func enabled(capabilities map[string]bool) (out []string) {
	for name, on := range capabilities {
		if on {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Fuse returns the configuration of a chain that contains a list's plugins unchanged.
func Fuse(plugins [][]byte) ([]byte, error) { return around(ChainType, plugins) }

// around returns the configuration of a plugin that contains plugins unchanged, with all their capabilities and more.
func around(pluginType string, plugins [][]byte, more ...string) ([]byte, error) {
	chain, _ := rawjson.ParseObject([]byte("{}"))
	chain.SetString("type", pluginType)
	all := map[string]bool{}
	for _, p := range plugins {
		names, err := Capabilities(p)
		if err != nil {
			return nil, err
		}
		for _, n := range append(names, more...) {
			all[n] = true
		}
	}
	if len(all) > 0 {
		raw, err := json.Marshal(all)
		if err != nil {
			return nil, err
		}
		chain.Set("capabilities", raw)
	}
	chain.SetArray("plugins", plugins)
	return chain.Bytes(), nil
}

// loaded is a parsed chain configuration.
type loaded struct {
	version string
	members []ChainMember
	conf    *rawjson.Object
	data    []byte
}

func read(data []byte) (*loaded, error) {
	conf, err := rawjson.ParseObject(data)
	if err != nil {
		return nil, cni.Invalid(data, "", "want an object")
	}
	members, err := ChainMembers(data)
	if err != nil {
		return nil, err
	}
	l := &loaded{version: conf.String("cniVersion"), members: members, conf: conf, data: data}
	if l.version == "" {
		l.version = "0.1.0"
	}
	return l, nil
}

// requests returns the members' configurations as a runtime derives them. Source: specification, section 3.
func (l *loaded) requests(verb string) []invoke.Member {
	out := make([]invoke.Member, len(l.members))
	for i := range l.members {
		m := &l.members[i]
		out[i] = invoke.Member{Path: m.path, Request: func(prev []byte) ([]byte, error) {
			if verb != "ADD" {
				prev = nil
			}
			return l.request(m, prev)
		}}
	}
	return out
}

// request returns a member's configuration: every key of the chain that is not the chain's own, the member's part of
// runtimeConfig, and the result of the member before it. The chain's keys of args.cni are added to the member's.
func (l *loaded) request(m *ChainMember, prev []byte) ([]byte, error) {
	req, err := rawjson.ParseObject(m.Raw)
	if err != nil {
		return nil, err
	}
	for key, raw := range l.conf.All() {
		switch key {
		case "type", "plugins", "capabilities", "runtimeConfig", "confDirs":
		case "args":
			if err := request.MergeArgs(req, l.conf); err != nil {
				return nil, cni.Errorf(cni.CodeInvalidNetworkConfig, "%w", err)
			}
		default:
			req.Set(key, raw)
		}
	}
	req.SetString("cniVersion", l.version)
	req.Delete("capabilities")
	if raw, ok := l.conf.Get("runtimeConfig"); ok {
		if err := m.capable(req, raw); err != nil {
			return nil, err
		}
	}
	if prev != nil {
		req.Set("prevResult", prev)
	}
	return req.Bytes(), nil
}

// capable passes on the arguments of the capabilities that the member enables.
func (m *ChainMember) capable(req *rawjson.Object, raw json.RawMessage) error {
	args, err := rawjson.ParseObject(raw)
	if err != nil {
		return fmt.Errorf("runtimeConfig: want an object: %w", err)
	}
	wanted, _ := rawjson.ParseObject([]byte("{}"))
	for key, v := range args.All() {
		if m.capabilities[key] {
			wanted.Set(key, v)
		}
	}
	if wanted.Len() > 0 {
		req.Set("runtimeConfig", wanted.Bytes())
	}
	return nil
}
