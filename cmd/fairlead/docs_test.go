package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
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
	if pod, _, err := root.Find([]string{"pod"}); err == nil {
		commands = append(commands, pod.Commands()...)
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
			c.PersistentFlags().VisitAll(told) // of its own commands
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
