package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/agent/config"
)

// TestDocs holds docs/commands.md to the commands: each has its section, with
// its usage and its own flags, and both tables say what the help says.
func TestDocs(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/commands.md")
	must(t, err)
	doc := string(raw)
	root := newApp().root()
	commands := root.Commands()
	for _, name := range []string{"pod", "ipam"} {
		c, _, err := root.Find([]string{name})
		must(t, err)
		commands = append(commands, c.Commands()...)
	}
	agents := map[string]bool{"config": true} // told with the agent
	for _, s := range config.Settings() {
		agents[s.Flag()] = true
	}
	for _, c := range commands {
		if c.Hidden || !c.Runnable() || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		head := "\n### " + strings.TrimSuffix(c.CommandPath(), c.Name()) + c.Use + "\n"
		_, section, found := strings.Cut(doc, head)
		if !found {
			t.Errorf("no section%s", head)
			continue
		}
		section, _, _ = strings.Cut(section, "\n#")
		told := func(f *pflag.Flag) {
			// What all commands on a network have is told with add.
			if f.Name != "help" && f.Name != "ifname" && !strings.Contains(section, "`--"+f.Name) {
				t.Errorf("%s: nothing about --%s", c.CommandPath(), f.Name)
			}
		}
		c.LocalNonPersistentFlags().VisitAll(told)
		if c.HasParent() && c.Parent() == root {
			c.PersistentFlags().VisitAll(func(f *pflag.Flag) { // of its own commands
				if c.Name() == "agent" || !agents[f.Name] {
					told(f)
				}
			})
		}
	}
	for _, help := range []string{exitHelp, environmentHelp} {
		for l := range strings.Lines(help) {
			word, rest, _ := strings.Cut(strings.TrimSpace(l), " ")
			if strings.HasPrefix(l, "   ") { // the line before goes on
				continue
			}
			first, _, _ := strings.Cut(strings.TrimSpace(rest), ";")
			first, _, _ = strings.Cut(first, ":")
			if !strings.Contains(doc, "| "+word+" | "+first) {
				t.Errorf("the tables lack %s: %s", word, first)
			}
		}
	}
}
