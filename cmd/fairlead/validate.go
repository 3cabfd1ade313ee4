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

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
)

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate [FILE|DIRECTORY...]", Short: "say everything that is wrong with configurations", GroupID: "look",
		Long: "Validate reads configurations (.conflist, .conf, .json) and the files dropped in beside\n" +
			"a list, and prints every problem with its file, line, column, key, value and what is\n" +
			"allowed there. A plugin that is not on CNI_PATH is a warning. Without a word it reads\n" +
			"NETCONFPATH. Exit code 3: something is not valid.",
		Example: "  fairlead validate /etc/cni/net.d/10-my-network.conflist\n  fairlead validate --json examples/*.conf*",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{a.confDir()}
			}
			files, err := confFiles(args)
			if err != nil {
				return err
			}
			var all []report
			for _, f := range files {
				all = append(all, a.validateFile(f)...)
			}
			return a.printReports(all)
		},
	}
}

// confFiles replaces directories by the configurations in them.
func confFiles(args []string) (files []string, err error) {
	for _, arg := range args {
		if fi, err := os.Stat(arg); err != nil || !fi.IsDir() {
			files = append(files, arg) // what cannot be read is a finding
			continue
		}
		in, err := libcni.ConfFiles(arg, confExtensions())
		if err == nil && len(in) == 0 {
			err = libcni.NoConfigsFoundError{Dir: arg}
		}
		if err != nil {
			return nil, err
		}
		files = append(files, in...)
	}
	return files, nil
}

// confExtensions are the names' endings that runtimes look for.
func confExtensions() []string { return []string{".conf", ".conflist", ".json"} }

// report is what was found in one file.
type report struct {
	File       string    `json:"file"`
	OK         bool      `json:"ok"`
	Network    string    `json:"network,omitempty"`
	CNIVersion string    `json:"cniVersion,omitempty"`
	Plugins    []string  `json:"plugins,omitempty"`
	Problems   []finding `json:"problems"`
	Warnings   []finding `json:"warnings"`
}

// finding is a problem or a warning, and where.
type finding struct {
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"`
	Value   string `json:"value,omitempty"`
	Problem string `json:"problem"`
}

// in is a finding in the form of a configuration's errors.
func (f finding) in(file string) error {
	return &cni.ConfigError{File: file, Line: f.Line, Column: f.Column, Key: f.Key, Value: f.Value, Problem: f.Problem}
}

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
	return dropIns
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
}

// typed asks the plugin of ours by the type's name, if there is one.
func (c *checked) typed(conf *libcni.NetworkConfig) error {
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

func (a *app) printReports(all []report) error {
	bad := 0
	var b strings.Builder
	for _, r := range all {
		for _, f := range r.Problems {
			fmt.Fprintln(&b, f.in(r.File))
		}
		for _, f := range r.Warnings {
			f.Problem = "warning: " + f.Problem
			fmt.Fprintln(&b, f.in(r.File))
		}
		if !r.OK {
			bad++
		} else {
			fmt.Fprintf(&b, "%s: OK (network %s, cniVersion %s: %s)\n", r.File, r.Network, r.CNIVersion, join(r.Plugins))
		}
	}
	err := a.printJSONOr(all, b.String())
	if err == nil && bad > 0 {
		err = silentError{exitInvalid}
	}
	return err
}

// printJSONOr prints a value with --json, else a text.
func (a *app) printJSONOr(v any, text string) error {
	if a.json {
		return a.printJSON(v)
	}
	_, err := fmt.Fprint(a.stdout, text)
	return err
}
