// Package validate finds everything that is wrong in network configuration files.
package validate

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/netconf"
)

// Report contains the problems found in one file.
type Report struct {
	File       string    `json:"file"`
	OK         bool      `json:"ok"`
	Network    string    `json:"network,omitempty"`
	CNIVersion string    `json:"cniVersion,omitempty"`
	Plugins    []string  `json:"plugins,omitempty"`
	Problems   []Finding `json:"problems"`
	Warnings   []Finding `json:"warnings"`

	NoVersion bool `json:"-"` // the file has no version, so CNIVersion is the default
	dropIn    bool
	data      []byte
	pools     []pool
}

// Finding is a problem or a warning, and its place in the file.
type Finding struct {
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"`
	Value   string `json:"value,omitempty"`
	Problem string `json:"problem"`
}

// Error returns the finding as an error that names the file.
func (f Finding) Error(file string) error {
	return &cni.ConfigError{File: file, Line: f.Line, Column: f.Column, Key: f.Key, Value: f.Value, Problem: f.Problem}
}

// Files reports on configuration files and on the drop-in files next to them. PluginDirs are the directories of
// CNI_PATH.
func Files(files, pluginDirs []string) (all []Report) {
	for _, f := range files {
		all = append(all, File(f, pluginDirs)...)
	}
	findDuplicates(all)
	findSharedAddresses(all)
	return all
}

// Input is the name of standard input in a Report.
const Input = "-"

// Data reports on a configuration that is not in a file. It has no drop-in files.
func Data(data []byte, pluginDirs []string) Report {
	c := newChecker(Input, pluginDirs)
	if c.data = data; c.isJSON() {
		c.whole()
	}
	return c.finish()
}

func newChecker(file string, pluginDirs []string) *checker {
	return &checker{pluginDirs: pluginDirs, Report: Report{File: file, Problems: []Finding{}, Warnings: []Finding{}}}
}

// File reports on one configuration file, first, and on its drop-in files.
func File(file string, pluginDirs []string) []Report {
	c := newChecker(file, pluginDirs)
	var dropIns []string
	if c.read() {
		dropIns = c.whole()
	}
	all := []Report{c.finish()}
	for _, d := range dropIns {
		r := checkDropIn(d, all[0], pluginDirs)
		all[0].Plugins = append(all[0].Plugins, r.Plugins...)
		all = append(all, r)
	}
	return all
}

// Problems returns all problems in a file and its drop-in files as one error.
func Problems(file string, pluginDirs []string) error {
	var problems []error
	for _, r := range File(file, pluginDirs) {
		for _, p := range r.Problems {
			problems = append(problems, p.Error(r.File))
		}
	}
	return errors.Join(problems...)
}

func checkDropIn(file string, list Report, pluginDirs []string) Report {
	c := newChecker(file, pluginDirs)
	c.Network, c.CNIVersion, c.NoVersion, c.dropIn = list.Network, list.CNIVersion, list.NoVersion, true
	if c.read() {
		c.member("")
	}
	return c.finish()
}

// findDuplicates reports files of one directory that have a network of the same name.
func findDuplicates(all []Report) {
	type network struct{ dir, name string }
	first := map[network]string{}
	for i := range all {
		r := &all[i]
		key := network{filepath.Dir(r.File), r.Network}
		switch {
		case r.dropIn || r.Network == "" || first[key] == r.File:
		case first[key] == "":
			first[key] = r.File
		default:
			r.Problems = add(r.Problems, r.data, "name", fmt.Sprintf("%s has a network of this name, too: a runtime uses only the first file by name", first[key]))
			r.OK = false
		}
	}
}

// read reads the file, and reports one that cannot be read or is not JSON.
func (c *checker) read() bool {
	var err error
	if c.data, err = os.ReadFile(c.File); err != nil {
		problem := err.Error()
		if e, ok := errors.AsType[*os.PathError](err); ok { // the report names the file already
			problem = e.Err.Error()
		}
		c.Problems = append(c.Problems, Finding{Problem: problem})
		return false
	}
	return c.isJSON()
}

func (c *checker) isJSON() bool {
	e, ok := errors.AsType[*cni.ConfigError](cni.Check(c.data))
	if ok {
		c.Problems = append(c.Problems, Finding{e.Line, e.Column, e.Key, e.Value, e.Problem})
	}
	return !ok
}

// finish returns the report with its findings in the order of the file.
func (c *checker) finish() Report {
	for _, list := range [][]Finding{c.Problems, c.Warnings} {
		slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	}
	c.OK = len(c.Problems) == 0
	return c.Report
}

// Text returns the reports as lines: FILE:LINE:COLUMN: KEY = VALUE: PROBLEM.
func Text(all []Report) string {
	var b strings.Builder
	for _, r := range all {
		for _, f := range r.Problems {
			fmt.Fprintln(&b, f.Error(r.File))
		}
		for _, f := range r.Warnings {
			f.Problem = "warning: " + f.Problem
			fmt.Fprintln(&b, f.Error(r.File))
		}
		version := "cniVersion " + r.CNIVersion
		if r.NoVersion {
			version = "no cniVersion, so " + r.CNIVersion
		}
		if r.OK {
			fmt.Fprintf(&b, "%s: OK (network %s, %s: %s)\n", r.File, r.Network, version, strings.Join(r.Plugins, ", "))
		}
	}
	return b.String()
}

// oddName warns of a file that runtimes do not read.
func (c *checker) oddName() {
	if c.File != Input && !slices.Contains(netconf.Extensions(), filepath.Ext(c.File)) {
		c.warn("", fmt.Sprintf("runtimes only read files whose name ends in %s", strings.Join(netconf.Extensions(), ", ")))
	}
}
