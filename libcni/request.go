package libcni

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/cni/wire"
)

// network contains the keys that every plugin of a list receives.
type network struct{ name, version string }

func (l *NetworkConfigList) network() network {
	return network{name: l.Name, version: orFirst(l.CNIVersion)}
}

func (n *NetworkConfig) network() network {
	return network{name: n.Network.Name, version: orFirst(n.Network.CNIVersion)}
}

// orFirst returns 0.1.0 for a configuration without cniVersion.
func orFirst(version string) string {
	if version == "" {
		return "0.1.0"
	}
	return version
}

// request derives a plugin's request from its configuration. Source: specification, section 3, "Deriving request
// configuration from plugin configuration".
func (n network) request(conf *NetworkConfig) (*rawjson.Object, error) {
	req, err := rawjson.ParseObject(conf.Bytes)
	if err != nil {
		return nil, fmt.Errorf("derive request of network %s: %w", n.name, err)
	}
	req.SetString("cniVersion", n.version)
	req.SetString("name", n.name)
	req.Delete("capabilities")
	return req, nil
}

// Request returns what AddNetworkList would send to a plugin of the list. prev is the previous plugin's result, or nil
// for the first.
func (l *NetworkConfigList) Request(conf *NetworkConfig, prev *cni.Result, rt *RuntimeConf) ([]byte, error) {
	return l.network().attachment(conf, prev, rt)
}

// attachment returns a request for ADD, CHECK or DEL.
func (n network) attachment(conf *NetworkConfig, prev *cni.Result, rt *RuntimeConf) ([]byte, error) {
	req, err := n.request(conf)
	if err != nil {
		return nil, err
	}
	if err := setRuntimeConfig(req, conf, rt); err != nil {
		return nil, err
	}
	if prev != nil {
		raw, err := wire.EncodeValue(prev, n.version)
		if err != nil {
			return nil, fmt.Errorf("prevResult of network %s: %w", n.name, err)
		}
		req.Set("prevResult", raw)
	}
	return req.Bytes(), nil
}

// members returns the plugins for an Exec that runs them together. prev is the prevResult of CHECK and DEL; in an ADD
// each member gets the previous one's result.
func (n network) members(plugins []*NetworkConfig, paths []string, prev *cni.Result, rt *RuntimeConf) []invoke.Member {
	out := make([]invoke.Member, len(plugins))
	for i, p := range plugins {
		out[i] = invoke.Member{Path: paths[i], Request: func(printed []byte) ([]byte, error) {
			if len(printed) == 0 {
				return n.attachment(p, prev, rt)
			}
			req, err := n.attachment(p, nil, rt)
			if err != nil {
				return nil, err
			}
			with, err := rawjson.ParseObject(req)
			if err != nil {
				return nil, err
			}
			with.Set("prevResult", printed)
			return with.Bytes(), nil
		}}
	}
	return out
}

// setRuntimeConfig passes on the capability arguments that the plugin declares.
func setRuntimeConfig(req *rawjson.Object, conf *NetworkConfig, rt *RuntimeConf) error {
	wanted := map[string]any{}
	for capability, enabled := range conf.Network.Capabilities {
		if arg, ok := rt.CapabilityArgs[capability]; ok && enabled {
			wanted[capability] = arg
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	raw, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("capability arguments: %w", err)
	}
	req.Set("runtimeConfig", raw)
	return nil
}

// args returns the variables of one call; rt is empty for GC and STATUS.
func (c *CNIConfig) args(command string, rt *RuntimeConf) *invoke.Args {
	return &invoke.Args{
		Command:     command,
		ContainerID: rt.ContainerID,
		NetNS:       rt.NetNS,
		PluginArgs:  rt.Args,
		IfName:      rt.IfName,
		Path:        strings.Join(c.Path, string(os.PathListSeparator)),
	}
}

// findAll finds every program of a list, so that none runs if one is missing.
func (c *CNIConfig) findAll(plugins []*NetworkConfig) ([]string, error) {
	paths := make([]string, len(plugins))
	for i, p := range plugins {
		path, err := c.executor().FindInPath(p.Network.Type, c.Path)
		if err != nil {
			return nil, err
		}
		paths[i] = path
	}
	return paths, nil
}

// validate checks an attachment's names before a plugin runs.
func (rt *RuntimeConf) validate(n network) error {
	if err := cni.ValidateContainerID(rt.ContainerID); err != nil {
		return err
	}
	if err := cni.ValidateNetworkName(n.name); err != nil {
		return err
	}
	return cni.ValidateInterfaceName(rt.IfName)
}

// pluginError adds the plugin, the network and the verb to an error.
func pluginError(n network, conf *NetworkConfig, verb string, err error) error {
	return fmt.Errorf("plugin type=%q name=%q failed (%s): %w", conf.Network.Type, n.name, verb, n.locate(conf, err))
}
