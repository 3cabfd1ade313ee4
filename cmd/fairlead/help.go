package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageTemplate is cobra's template with the examples before the flags. A command without groups lists its
// subcommands under one title.
const usageTemplate = `Usage:
  {{if .Runnable}}{{.UseLine}}{{else}}{{.CommandPath}} COMMAND{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name 14}} {{.Short}}{{end}}{{end}}{{end}}{{if not .AllChildCommandsHaveGroup}}

Commands:{{range $cmds}}{{if (and (eq .GroupID "") .IsAvailableCommand)}}
  {{rpad .Name 14}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Global flags:
{{.InheritedFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}{{if .HasHelpSubCommands}}

Help topics:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name 14}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableSubCommands}}

Type "{{if .HasParent}}{{.CommandPath}} COMMAND --help{{else}}{{.CommandPath}} help COMMAND{{end}}" for details and examples.{{end}}
`

// helpTopics are pages of help that belong to no command.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "environment", Short: "the variables that fairlead reads", Long: "Fairlead reads these variables:\n\n" + environmentHelp},
		{Use: "exit-codes", Short: "what the exit codes mean", Long: "The exit codes:\n\n" + exitHelp},
	}
}

// helpCommand returns "fairlead help", which fails for a topic that does not exist.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "describe a command", GroupID: "more",
		Long:    "Help describes a command or a topic.",
		Example: "  fairlead help add\n  fairlead help exit-codes",
		RunE: func(c *cobra.Command, args []string) error {
			target, rest, err := c.Root().Find(args)
			if err != nil || target == nil {
				return unknownCommand(c.Root(), args[0])
			}
			if len(rest) > 0 {
				return unknownCommand(target, rest[0])
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			target, _, err := c.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, sub := range target.Commands() {
				if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
					names = append(names, sub.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// describeHelpFlags gives every command the same description of --help.
func describeHelpFlags(c *cobra.Command) {
	c.InitDefaultHelpFlag()
	if f := c.Flags().Lookup("help"); f != nil {
		f.Usage = "Print this help."
	}
	for _, sub := range c.Commands() {
		describeHelpFlags(sub)
	}
}

// helpWidth is the number of columns of help texts.
const helpWidth = 100

// wrapDescriptions wraps the paragraphs of every command's description. Lists and tables, which are indented, stay.
func wrapDescriptions(c *cobra.Command) {
	paragraphs := strings.Split(c.Long, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") {
			paragraphs[i] = wrap("", p, helpWidth)
		}
	}
	c.Long = strings.Join(paragraphs, "\n\n")
	for _, sub := range c.Commands() {
		wrapDescriptions(sub)
	}
}

// wrap wraps the words of a paragraph at a number of bytes. The first line begins with the bullet, the others align with it.
func wrap(bullet, text string, width int) string {
	indent := strings.Repeat(" ", len(bullet))
	lines, line := []string{}, bullet
	for i, w := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(w) > width {
			lines = append(lines, line)
			line = indent + w
			continue
		}
		if i > 0 {
			line += " "
		}
		line += w
	}
	return strings.Join(append(lines, line), "\n")
}

// sentence makes a sentence of the description of a flag that cobra defines.
func sentence(f *pflag.Flag) {
	if f.Usage != "" && !strings.HasSuffix(f.Usage, ".") {
		f.Usage = strings.ToUpper(f.Usage[:1]) + f.Usage[1:] + "."
	}
}

// groupCommand is the RunE of a command that only has subcommands.
func groupCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	return unknownCommand(c, args[0])
}

// unknownCommand reports a word that is no subcommand of c.
func unknownCommand(c *cobra.Command, word string) error {
	next := "Type: fairlead help"
	if c.HasParent() {
		next = "Type: " + c.CommandPath() + " --help"
	}
	if s := suggestion(c, word); s != "" {
		next = "Did you mean: " + s
	}
	return &usageError{fmt.Sprintf("there is no command %q", strings.TrimPrefix(c.CommandPath()+" "+word, "fairlead ")), next}
}

// synonyms are sets of words that users type for one thing.
func synonyms() [][]string {
	return [][]string{
		{"del", "delete", "remove", "rm", "destroy", "teardown", "release", "uninstall"},
		{"detach", "disconnect", "del"},
		{"add", "attach", "connect", "join"},
		{"list", "ls", "ps", "get", "show"},
		{"show", "status", "inspect", "describe", "info", "get", "list"},
		{"create", "new", "make", "add", "setup", "apply"},
		{"apply", "set", "update", "edit", "change", "replace", "configure"},
		{"check", "verify", "test"},
		{"validate", "lint", "config"},
		{"gc", "clean", "cleanup", "prune", "collect"},
		{"repair", "fix", "restore", "heal"},
		{"doctor", "diagnose", "debug", "troubleshoot"},
		{"install", "upgrade"},
		{"plan", "preview", "diff", "simulate"},
		{"map", "draw", "topology", "graph"},
		{"agent", "daemon", "run", "start", "serve"},
	}
}

// suggestion returns the command line that the user probably meant with a word, or "".
func suggestion(c *cobra.Command, word string) string {
	word = strings.ToLower(word)
	names := map[string]*cobra.Command{}
	var sorted []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names[sub.Name()] = sub
			sorted = append(sorted, sub.Name())
		}
	}
	if sub := names[strings.TrimSuffix(word, "s")]; sub != nil { // a plural
		if list, _, err := sub.Find([]string{"list"}); err == nil && list != sub {
			return list.CommandPath()
		}
		return sub.CommandPath()
	}
	for _, set := range synonyms() {
		if !slices.Contains(set, word) {
			continue
		}
		for _, name := range set {
			if names[name] != nil {
				return names[name].CommandPath()
			}
		}
	}
	best, least := "", 3
	for _, name := range sorted {
		if d := distance(word, name); d < least && d <= len(word)/2 {
			best, least = name, d
		}
	}
	for _, name := range sorted {
		if best == "" && len(word) > 1 && strings.HasPrefix(name, word) {
			best = name
		}
	}
	if best == "" {
		return ""
	}
	return names[best].CommandPath()
}

// distance returns the number of letters to insert, delete, replace or swap (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0:
				rows[i][j] = j
			case j == 0:
				rows[i][j] = i
			default:
				cost := 1
				if a[i-1] == b[j-1] {
					cost = 0
				}
				rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
				if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
					rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
				}
			}
		}
	}
	return rows[len(a)][len(b)]
}

// want checks the number of arguments of a command, and that no argument and no flag is empty. A negative maximum means no
// limit.
func want(min, max int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < min:
			return &usageError{"usage: " + c.UseLine(), "Type: " + c.CommandPath() + " --help"}
		case len(args) > max && max == 0 && c.HasAvailableSubCommands():
			return unknownCommand(c, args[0])
		case max >= 0 && len(args) > max:
			return &usageError{fmt.Sprintf("too many arguments, from %q on; usage: %s", args[max], c.UseLine()), "Type: " + c.CommandPath() + " --help"}
		}
		if i := slices.Index(args, ""); i >= 0 { // a variable of a script may be unset
			return &usageError{fmt.Sprintf("argument %d is empty; usage: %s", i+1, c.UseLine()), "Type: " + c.CommandPath() + " --help"}
		}
		return noEmptyFlag(c)
	}
}

// emptyAnnotation marks a flag whose empty value has a meaning.
const emptyAnnotation = "fairlead_empty"

// mayBeEmpty marks flags whose empty value has a meaning.
func mayBeEmpty(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, emptyAnnotation, nil) // the flag exists
	}
}

// noEmptyFlag rejects a flag with an empty value: a variable of a script may be unset. Without the flag the command may do
// more than the user wants. For example, "kubernetes uninstall" without --node is about all nodes.
func noEmptyFlag(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		_, allowed := f.Annotations[emptyAnnotation]
		if takesNoValue := f.NoOptDefVal != ""; !allowed && !takesNoValue && (len(values) == 0 || slices.Contains(values, "")) {
			err = &usageError{"--" + f.Name + " is empty", "Type: " + c.CommandPath() + " --help"}
		}
	})
	return err
}

// flagError describes an invalid flag with the text that the user typed.
func flagError(c *cobra.Command, err error) error {
	problem := err.Error()
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		problem = fmt.Sprintf("--%s %s: %s", e.GetFlag().Name, e.GetValue(), wanted(e))
	}
	return &usageError{problem, "Type: " + c.CommandPath() + " --help"}
}

// wanted describes the values that a flag takes.
func wanted(e *pflag.InvalidValueError) string {
	switch e.GetFlag().Value.Type() {
	case "int":
		return "want a whole number"
	case "duration":
		return "want a duration above zero, like 30s or 2m"
	case "bool":
		return "want true or false"
	}
	return e.Unwrap().Error()
}
