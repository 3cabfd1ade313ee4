package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const commandsDoc = "../../docs/commands.md"

// TestDocs compares docs/commands.md with the help of all commands; UPDATE=1 writes it.
func TestDocs(t *testing.T) {
	t.Parallel()
	want := commandsPage(newApp().root())
	comparePage(t, commandsDoc, want)
	for l := range strings.Lines(want) {
		if len(l) > 121 && !strings.HasPrefix(l, "  fairlead") {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
}

// comparePage compares a generated page with the code. UPDATE=1 writes the page.
func comparePage(t *testing.T, file, want string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		must(t, os.WriteFile(file, []byte(want), 0o644))
	}
	got, err := os.ReadFile(file)
	must(t, err)
	if string(got) != want {
		t.Errorf("%s differs from the code: UPDATE=1 go test ./cmd/fairlead -run %s writes it", file, t.Name())
	}
}

const docsHeader = `# Commands

This page is generated from the help texts. ` + "`UPDATE=1 go test ./cmd/fairlead -run TestDocs`" + ` writes it.

%s

%s

A container that was added with ` + "`fairlead add`" + ` has the ID that ` + "`cnitool`" + ` gives it: ` + "`cnitool-`" + ` and the first ten
bytes, in hex, of the SHA-512 of the namespace's absolute path. So always use the same path: ` + "`/var/run/netns/web`" + ` is
another container than ` + "`/run/netns/web`" + `.

Plugins on CNI_PATH that were built with this program run inside it. All others run as processes.

With ` + "`--json`" + `, an error is one line on standard error, with the codes of the CNI specification:
` + "`{\"error\": {\"code\": 7, \"msg\": \"...\"}}`" + `.

Global flags, for every command:

%s`

const docsFooter = `## cnitool

Under the name ` + "`cnitool`" + ` the program behaves as the reference: the same arguments, the same results, exit code 1 for
every failure, only paths for NETNS, and a ` + "`gc`" + ` that keeps nothing. It prints an error once, without the usage. Like
newer versions it accepts ` + "`-i`" + ` (` + "`--ifname`" + `), and prints its usage with ` + "`--help`" + ` or without arguments.

` + "```sh" + `
ln -s fairlead bin/cnitool
bin/cnitool add my-network /run/netns/web
bin/cnitool check my-network /run/netns/web
bin/cnitool del my-network /run/netns/web
` + "```" + `

## Environment

%s
## Exit codes

%s`

// commandsPage returns the page about all commands.
func commandsPage(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, docsHeader, paragraphs(root.Long), example(root), flagList(root.PersistentFlags(), nil))
	for _, g := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n", strings.TrimSuffix(g.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == g.ID {
				section(&b, c)
			}
		}
	}
	fmt.Fprintf(&b, "\n"+docsFooter, definitions(environmentHelp), definitions(exitHelp))
	return b.String()
}

func section(b *strings.Builder, c *cobra.Command) {
	if c.Hidden || c.Name() == "help" || c.Parent().Name() == "completion" {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n%s\n", strings.TrimSuffix(c.CommandPath(), c.Name())+c.Use, paragraphs(c.Long), example(c))
	if list := flagList(c.LocalFlags(), storeFlags(c)); list != "" {
		fmt.Fprintf(b, "\n%s", list)
	}
	if storeFlags(c) != nil {
		fmt.Fprintf(b, "\n%s\n", wrapped("", "The flags `--config`, `--store-...` and `--flannel-prefix` of `fairlead agent` name the store."))
	}
	for _, sub := range c.Commands() {
		section(b, sub)
	}
}

// storeFlags returns the flags that a command shares with "agent", or nil.
func storeFlags(c *cobra.Command) []string {
	if c.Name() == "agent" || c.PersistentFlags().Lookup("store-file") == nil {
		return nil
	}
	var names []string
	c.PersistentFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

func flagList(flags *pflag.FlagSet, skip []string) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || slices.Contains(skip, f.Name) {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		word := "`--" + strings.TrimSpace(f.Name+" "+strings.ToUpper(name)) + "`"
		if f.Shorthand != "" {
			word = "`-" + f.Shorthand + "`, " + word
		}
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "0s" && d != "[]" {
			usage = strings.TrimSuffix(usage, ".") + " (default " + strings.Trim(d, "[]") + ")."
		}
		b.WriteString(wrapped("- ", word+": "+usage) + "\n")
	})
	return b.String()
}

func example(c *cobra.Command) string {
	var b strings.Builder
	for l := range strings.Lines(c.Example) {
		b.WriteString(strings.TrimPrefix(l, "  "))
	}
	language := "" // test/docs runs the blocks in sh
	if slices.Contains([]string{"fairlead", "add", "check", "del", "gc", "repair", "status", "list", "doctor", "plan", "version"}, c.Name()) && (!c.HasParent() || !c.Parent().HasParent()) {
		language = "sh"
	}
	return "```" + language + "\n" + strings.TrimRight(b.String(), "\n") + "\n```"
}

// paragraphs wraps text at 120 columns. It keeps lists, and makes lists of indented tables.
func paragraphs(text string) string {
	var out []string
	for p := range strings.SplitSeq(text, "\n\n") {
		lines := strings.Split(p, "\n")
		switch {
		case strings.HasPrefix(p, "  - "):
			var items []string
			for _, l := range lines {
				if strings.HasPrefix(l, "  - ") {
					items = append(items, strings.TrimPrefix(l, "  - "))
				} else {
					items[len(items)-1] += " " + strings.TrimSpace(l)
				}
			}
			for i := range items {
				items[i] = wrapped("- ", items[i])
			}
			out = append(out, strings.Join(items, "\n"))
		case strings.HasPrefix(p, "  "):
			out = append(out, strings.TrimRight(definitions(p), "\n"))
		default:
			out = append(out, wrapped("", strings.Join(lines, " ")))
		}
	}
	return strings.Join(out, "\n\n")
}

// definitions makes a list of lines "  TERM  TEXT". A line that is indented further continues the one before.
func definitions(text string) string {
	var items []string
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\n")
		if strings.HasPrefix(l, "   ") {
			items[len(items)-1] += " " + strings.TrimSpace(l)
			continue
		}
		term, about, _ := strings.Cut(strings.TrimSpace(l), "  ")
		items = append(items, "`"+term+"`: "+strings.TrimSpace(about))
	}
	for i := range items {
		items[i] = wrapped("- ", items[i])
	}
	return strings.Join(items, "\n") + "\n"
}

// wrapped wraps a paragraph at 120 columns.
func wrapped(bullet, text string) string { return wrap(bullet, text, 120) }
