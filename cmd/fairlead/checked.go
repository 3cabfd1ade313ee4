package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// checked is a file while it is looked at.
type checked struct {
	report
	app  *app
	data []byte
}

// validateFile reports on a file and on those that are dropped in beside it.
func (a *app) validateFile(file string) []report {
	c := &checked{app: a, report: report{File: file, Problems: []finding{}, Warnings: []finding{}}}
	var dropIns []string
	var err error
	if c.data, err = os.ReadFile(file); err != nil {
		c.Problems = append(c.Problems, finding{Problem: err.Error()})
	} else {
		dropIns = c.examine()
	}
	all := []report{c.done()}
	for _, d := range dropIns {
		r := a.validateDropIn(d, c.report)
		all[0].Plugins = append(all[0].Plugins, r.Plugins...)
		all = append(all, r)
	}
	return all
}

func (a *app) validateDropIn(file string, list report) report {
	c := &checked{app: a, report: report{
		File: file, Network: list.Network, CNIVersion: list.CNIVersion, Problems: []finding{}, Warnings: []finding{},
	}}
	var err error
	if c.data, err = os.ReadFile(file); err != nil {
		c.Problems = append(c.Problems, finding{Problem: err.Error()})
	} else {
		c.member("")
	}
	return c.done()
}

// done is the report, its findings in the order of the file.
func (c *checked) done() report {
	for _, list := range [][]finding{c.Problems, c.Warnings} {
		slices.SortStableFunc(list, func(a, b finding) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	}
	c.OK = len(c.Problems) == 0
	return c.report
}

// examine looks at the whole file and returns the files dropped in beside it.
func (c *checked) examine() (dropIns []string) {
	if !slices.Contains(confExtensions(), filepath.Ext(c.File)) {
		c.warn("", fmt.Sprintf("runtimes read only files whose name ends in %s", join(confExtensions())))
	}
	if !isList(c.File, c.data) {
		c.single()
		return nil
	}
	c.gather("", c.data, func(data []byte) error {
		_, err := libcni.ConfListFromBytes(data)
		return err
	})
	c.Network, c.CNIVersion = c.text("name"), c.text("cniVersion")
	if list, err := libcni.ConfListFromBytes(c.data); err == nil {
		c.CNIVersion = list.CNIVersion // negotiated
	}
	dropIns = c.dropIns()
	raw, _ := rawjson.Find(c.data, "plugins")
	elements, _ := rawjson.Elements(raw.Raw)
	for i := range elements {
		c.member(fmt.Sprintf("plugins[%d]", i))
	}
	c.pinned("")
	return dropIns
}

// pinned warns where tuning changes the hardware address that antiSpoof has pinned by then.
func (c *checked) pinned(at string) {
	raw, _ := rawjson.Find(c.data, below(at, "plugins"))
	elements, _ := rawjson.Elements(raw.Raw)
	pins := false
	for i := range elements {
		member := below(at, fmt.Sprintf("plugins[%d]", i))
		for _, key := range []string{"mac", "capabilities.mac"} {
			if v, found := rawjson.Find(c.data, member+"."+key); pins && found && string(v.Raw) != "false" && c.text(member+".type") == "tuning" {
				c.warn(member+"."+key, "antiSpoof before it pins the address of that moment, and drops all that is sent from this one: give the hardware address to the plugin with antiSpoof")
			}
		}
		v, _ := rawjson.Find(c.data, member+".antiSpoof")
		pins = pins || string(v.Raw) == "true"
	}
}

// dropIns are the files *.conf in the directory that has the network's name.
func (c *checked) dropIns() (files []string) {
	if cni.ValidateNetworkName(c.Network) != nil {
		return nil
	}
	dir := filepath.Join(filepath.Dir(c.File), c.Network)
	if v, found := rawjson.Find(c.data, "loadOnlyInlinedPlugins"); !found || strings.Trim(string(v.Raw), `"`) != "true" {
		files, _ = libcni.ConfFiles(dir, []string{".conf"})
	}
	if _, found := rawjson.Find(c.data, "plugins"); !found && len(files) == 0 && json.Valid(c.data) {
		c.problem("plugins", "missing, and there is no *.conf in "+dir+": a list needs at least one plugin")
	}
	return files
}

// single looks at a file that configures one plugin.
func (c *checked) single() {
	c.Network, c.CNIVersion = c.text("name"), c.text("cniVersion")
	c.member("")
	if json.Valid(c.data) {
		if err := cni.ValidateNetworkName(c.Network); err != nil {
			c.problem("name", err.Error())
		}
	}
}

// member looks at the plugin at a path of the file, "": the whole.
func (c *checked) member(at string) {
	raw, _ := rawjson.Find(c.data, at)
	kind := ""
	c.gather(at, raw.Raw, func(data []byte) error {
		conf, err := libcni.ConfFromBytes(data)
		if err != nil {
			return err
		}
		kind = conf.Network.Type
		return c.typed(conf)
	})
	if kind == "" {
		return
	}
	c.Plugins = append(c.Plugins, kind)
	c.findable(at, "type")
	c.findable(at, "ipam.type")
	c.typos(at, kind, raw.Raw)
	if kind == delegate.ChainType {
		c.chain(at, raw.Raw)
	}
}

// chain looks at the plugins that one plugin runs.
func (c *checked) chain(at string, data []byte) {
	var members []delegate.ChainMember
	c.gather(at, data, func(data []byte) (err error) {
		members, err = delegate.ChainMembers(data)
		return err
	})
	c.pinned(at)
	declared, _ := delegate.Capabilities(data)
	for i, m := range members {
		c.member(below(at, fmt.Sprintf("plugins[%d]", i)))
		for _, name := range m.Capabilities() {
			if !slices.Contains(declared, name) {
				c.warn(below(at, fmt.Sprintf("plugins[%d].capabilities", i)), fmt.Sprintf("%s is not among the chain's own capabilities, so runtimes do not pass its arguments", name))
			}
		}
	}
}

// typed asks the plugin of ours by the type's name, if there is one.
func (c *checked) typed(conf *libcni.NetworkConfig) error {
	if conf.Network.Type == delegate.NetworkType {
		return delegate.ValidateNetwork(conf.Bytes)
	}
	p := declared(conf.Network.Type)
	if p == nil {
		return nil
	}
	req, err := rawjson.ParseObject(conf.Bytes)
	if err != nil {
		return err
	}
	req.SetString("cniVersion", c.CNIVersion)
	req.SetString("name", c.Network)
	return p.Validate(req.Bytes(), plugin.Env{IPAM: plugins.IPAM()})
}

// findable warns of a plugin that no directory of CNI_PATH has.
func (c *checked) findable(at, key string) {
	key = below(at, key)
	kind := c.text(key)
	if kind == "" || cni.ValidatePluginType(kind) != nil {
		return
	}
	if _, err := invoke.FindInPath(kind, c.app.pluginPath()); errors.Is(err, os.ErrNotExist) {
		c.warn(key, "there is no such plugin on CNI_PATH ("+strings.Join(c.app.pluginPath(), ", ")+")")
	}
}

// text is the string at a path of the file, or "".
func (c *checked) text(key string) (s string) {
	if v, ok := rawjson.Find(c.data, key); ok {
		_ = json.Unmarshal(v.Raw, &s)
	}
	return s
}

func (c *checked) problem(key, problem string) { c.Problems = note(c.Problems, c.data, key, problem) }
func (c *checked) warn(key, problem string)    { c.Warnings = note(c.Warnings, c.data, key, problem) }

// note adds a finding that is not there yet.
func note(list []finding, data []byte, key, problem string) []finding {
	e := cni.Invalid(data, key, problem)
	f := finding{e.Line, e.Column, e.Key, e.Value, e.Problem}
	if slices.Contains(list, f) {
		return list
	}
	return append(list, f)
}

// isList tells whether a file holds a list: by its name, or because it has
// the key plugins.
func isList(file string, data []byte) bool {
	_, found := rawjson.Find(data, "plugins")
	return found || filepath.Ext(file) == ".conflist"
}
