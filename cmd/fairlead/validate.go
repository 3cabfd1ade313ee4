package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/libcni"
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
