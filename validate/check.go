package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// versionOfOld is the version of a configuration without one.
const versionOfOld = "0.1.0"

// checker examines one file.
type checker struct {
	Report
	pluginDirs []string
}

// whole examines a file that is JSON, and returns its drop-in files.
func (c *checker) whole() (dropIns []string) {
	c.oddName()
	if !netconf.IsList(c.File, c.data) {
		c.single()
		return nil
	}
	if ext := filepath.Ext(c.File); ext != ".conflist" && slices.Contains(netconf.Extensions(), ext) {
		c.problem("plugins", "runtimes do not read lists from "+ext+" files: rename it to .conflist")
	}
	c.collect("", c.data, func(data []byte) error {
		_, err := libcni.ConfListFromBytes(data)
		return err
	})
	c.Network, c.CNIVersion = c.text("name"), c.text("cniVersion")
	if list, err := libcni.ConfListFromBytes(c.data); err == nil {
		c.CNIVersion = list.CNIVersion // the highest of cniVersions
	}
	c.defaultVersion()
	dropIns = c.dropIns()
	raw, _ := rawjson.Find(c.data, "plugins")
	elements, _ := rawjson.Elements(raw.Raw)
	for i := range elements {
		c.member(fmt.Sprintf("plugins[%d]", i))
	}
	c.first()
	c.pinned("")
	c.version()
	return dropIns
}

// defaultVersion sets the version of a configuration without one.
func (c *checker) defaultVersion() {
	_, one := rawjson.Find(c.data, "cniVersion")
	_, several := rawjson.Find(c.data, "cniVersions")
	if !one && !several {
		c.NoVersion, c.CNIVersion = true, versionOfOld
	}
}

// version reports a version that ADD rejects, unless the version has another problem.
func (c *checker) version() {
	key := "cniVersion"
	if _, one := rawjson.Find(c.data, key); !one {
		key = "cniVersions"
	}
	if slices.ContainsFunc(c.Problems, func(f Finding) bool { return strings.HasPrefix(f.Key, "cniVersion") }) {
		return
	}
	if c.CNIVersion != "" && !slices.Contains(cni.Versions(), c.CNIVersion) {
		c.problem(key, "ADD rejects this version: want one of "+strings.Join(cni.Versions(), ", "))
	}
}

// first reports that the first plugin of the list works on the result of a plugin before it: its ADD fails.
func (c *checker) first() {
	at := "plugins[0]"
	kind := c.text(at + ".type")
	for kind == delegate.ChainType || kind == delegate.PodType {
		at += ".plugins[0]"
		kind = c.text(at + ".type")
	}
	if p := builtin.Find(kind); p != nil && p.Chained {
		c.problem(at+".type", "ADD fails: "+kind+" works on the result of a plugin before it, and this is the first of the list")
	}
}

// pinned warns of a tuning plugin that changes the hardware address after antiSpoof has pinned it.
func (c *checker) pinned(at string) {
	raw, _ := rawjson.Find(c.data, below(at, "plugins"))
	elements, _ := rawjson.Elements(raw.Raw)
	pins := false
	for i := range elements {
		member := below(at, fmt.Sprintf("plugins[%d]", i))
		for _, key := range []string{"mac", "capabilities.mac"} {
			if v, found := rawjson.Find(c.data, member+"."+key); pins && found && string(v.Raw) != "false" && c.text(member+".type") == "tuning" {
				c.warn(member+"."+key, "antiSpoof in an earlier plugin pins the hardware address before this plugin changes it, and then drops all packets of the container: give the hardware address to the plugin with antiSpoof")
			}
		}
		v, _ := rawjson.Find(c.data, member+".antiSpoof")
		pins = pins || string(v.Raw) == "true"
	}
}

// dropIns returns the files *.conf in the directory with the network's name.
func (c *checker) dropIns() (files []string) {
	if c.File == Input || cni.ValidateNetworkName(c.Network) != nil {
		return nil
	}
	dir := filepath.Join(filepath.Dir(c.File), c.Network)
	if v, found := rawjson.Find(c.data, "loadOnlyInlinedPlugins"); !found || !strings.EqualFold(strings.Trim(string(v.Raw), `"`), "true") {
		files, _ = libcni.ConfFiles(dir, []string{".conf"})
	}
	if _, found := rawjson.Find(c.data, "plugins"); !found && len(files) == 0 {
		c.problem("plugins", "missing, and there is no *.conf in "+dir+": a list needs at least one plugin")
	}
	return files
}

// single examines a file that configures one plugin.
func (c *checker) single() {
	c.Network, c.CNIVersion = c.text("name"), c.text("cniVersion")
	c.defaultVersion()
	c.member("")
	c.version()
	if err := cni.ValidateNetworkName(c.Network); err != nil {
		c.problem("name", err.Error())
	}
}

// member examines the plugin at a path of the file. The path "" is the whole file.
func (c *checker) member(at string) {
	raw, _ := rawjson.Find(c.data, at)
	kind := ""
	c.collect(at, raw.Raw, func(data []byte) error {
		conf, err := libcni.ConfFromBytes(data)
		if err != nil {
			return err
		}
		kind = conf.Network.Type
		return c.validated(at, conf)
	})
	if kind == "" {
		return
	}
	c.Plugins = append(c.Plugins, kind)
	c.findable(at, "type")
	c.findable(at, "ipam.type")
	c.typos(at, kind, raw.Raw)
	if kind == delegate.ChainType || kind == delegate.PodType {
		c.chain(at, kind, raw.Raw)
	}
}

// chain examines the plugins inside a fairlead-chain or a fairlead-pod.
func (c *checker) chain(at, kind string, data []byte) {
	var members []delegate.ChainMember
	c.collect(at, data, func(data []byte) (err error) {
		members, err = delegate.ChainMembers(data)
		return err
	})
	c.pinned(at)
	declared, _ := delegate.Capabilities(data)
	if kind == delegate.PodType {
		if !slices.Contains(declared, delegate.PodAnnotations) {
			c.warn(at, delegate.PodAnnotations+" is not among its capabilities, so runtimes do not pass the annotations of pods")
		}
		declared = append(declared, "ips", "mac", "aliases", "infinibandGUID", "deviceID") // these come from annotations
	}
	for i, m := range members {
		c.member(below(at, fmt.Sprintf("plugins[%d]", i)))
		for _, name := range m.Capabilities() {
			if !slices.Contains(declared, name) {
				c.warn(below(at, fmt.Sprintf("plugins[%d].capabilities", i)), fmt.Sprintf("%s is not among the capabilities of the plugin around it, so runtimes do not pass its arguments", name))
			}
		}
	}
}

// validated runs the plugin's own validation, if it is one of this project.
func (c *checker) validated(at string, conf *libcni.NetworkConfig) error {
	if conf.Network.Type == delegate.NetworkType {
		return delegate.ValidateNetwork(conf.Bytes)
	}
	check := validation(conf.Network.Type)
	if check == nil {
		return nil
	}
	req, err := rawjson.ParseObject(conf.Bytes)
	if err != nil {
		return err
	}
	req.SetString("cniVersion", c.CNIVersion)
	req.SetString("name", c.Network)
	if err := check(req.Bytes()); err != nil {
		return err
	}
	c.pools = append(c.pools, pools(at, conf, req.Bytes())...)
	return nil
}

// validation returns the validation of this project's plugin with a name, or nil. A runtime can call an IPAM plugin, too.
func validation(name string) func(data []byte) error {
	if p := builtin.Find(name); p != nil {
		return func(data []byte) error { return p.Validate(data, plugin.Env{IPAM: plugins.IPAM()}) }
	}
	for _, p := range plugins.IPAM() {
		if p.Name == name {
			return p.Validate
		}
	}
	return nil
}

// findable warns of a plugin that is in no directory of CNI_PATH.
func (c *checker) findable(at, key string) {
	key = below(at, key)
	kind := c.text(key)
	if kind == "" || cni.ValidatePluginType(kind) != nil {
		return
	}
	if _, err := invoke.FindInPath(kind, c.pluginDirs); errors.Is(err, os.ErrNotExist) {
		problem := "runtimes do not find this plugin: it is not in " + strings.Join(c.pluginDirs, ", ")
		ours := builtin.Programs()
		if closest, ok := config.ClosestKey(kind, slices.Sorted(maps.Keys(ours))); ours[kind] != "" {
			problem += "; type: fairlead install"
		} else if ok {
			problem += fmt.Sprintf(": did you mean %q?", closest)
		}
		c.warn(key, problem)
	}
}

// text returns the string at a path of the file, or "".
func (c *checker) text(key string) string { return text(c.data, key) }

func text(data []byte, key string) (s string) {
	if v, ok := rawjson.Find(data, key); ok {
		_ = json.Unmarshal(v.Raw, &s)
	}
	return s
}

func (c *checker) problem(key, problem string) { c.Problems = add(c.Problems, c.data, key, problem) }
func (c *checker) warn(key, problem string)    { c.Warnings = add(c.Warnings, c.data, key, problem) }

// add adds a finding that is new.
func add(list []Finding, data []byte, key, problem string) []Finding {
	e := cni.Invalid(data, key, problem)
	f := Finding{e.Line, e.Column, e.Key, e.Value, e.Problem}
	if slices.Contains(list, f) {
		return list
	}
	return append(list, f)
}
