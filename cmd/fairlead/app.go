package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// app is what the commands share.
type app struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	json           bool
}

func newApp() *app {
	return &app{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
}

const rootLong = `Fairlead puts containers on networks: it runs the plugins of a network's
configuration (CNI) for a network namespace, checks and removes what they made,
and shows what there is.

NETWORK is the name of a network in NETCONFPATH; NETNS is the path of a network
namespace, or a name as "ip netns" knows it.`

const rootExample = `  ip netns add web                     # a namespace, as a container has one
  fairlead add my-network web          # attach it
  fairlead list                        # what is attached
  fairlead check my-network web        # is everything still as it was made?
  fairlead del my-network web          # detach it`

const environmentHelp = `  NETCONFPATH   directory of network configurations; default /etc/cni/net.d
  CNI_PATH      directories of plugins; default: cni/ beside this program, or
                /opt/cni/bin if there is none
  CNI_IFNAME    the interface's name in the container; default eth0
  CNI_ARGS      arguments for the plugins: KEY=VALUE;KEY=VALUE
  CAP_ARGS      capability arguments, JSON: {"portMappings": [{"hostPort": 8080,
                "containerPort": 80, "protocol": "tcp"}]}
  OTEL_EXPORTER_OTLP_ENDPOINT  of pod: where traces go, by OTLP over HTTP, such as
                http://127.0.0.1:4318; default: nowhere
  FAIRLEAD_RUN  directory of runtime state; default /run/fairlead
  FAIRLEAD_LIB  directory of results and addresses; default /var/lib/cni`

// root is the command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "fairlead COMMAND", DisableFlagsInUseLine: true, Short: "put containers on networks", Long: rootLong, Example: rootExample,
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs,
		RunE: unknownCommand,
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{err.Error(), "Type: " + c.CommandPath() + " --help"}
	})
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, errors included")
	root.AddGroup(&cobra.Group{ID: "attach", Title: "Attachments:"}, &cobra.Group{ID: "look", Title: "Looking:"},
		&cobra.Group{ID: "cluster", Title: "Several hosts:"}, &cobra.Group{ID: "more", Title: "More:"})
	root.AddCommand(a.addCommand(), a.checkCommand(), a.delCommand(), a.gcCommand(), a.repairCommand(), a.statusCommand(), a.podCommand())
	root.AddCommand(a.listCommand(), a.doctorCommand(), a.planCommand(), a.validateCommand(), a.versionCommand())
	root.AddCommand(a.agentCommand(), a.nodeCommand(), a.networkCommand(), a.ipamCommand(), a.mapCommand())
	root.AddCommand(a.installCommand(), a.uninstallCommand(), a.migrateCommand(), a.fuseCommand(), a.dhcpCommand(), a.wireguardCommand())
	root.AddCommand(append(a.demoCommands(), a.demoClusterCommand())...)
	root.AddCommand(a.topics()...)
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	root.SetUsageTemplate(usageTemplate)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Short = "a script that completes commands, networks and namespaces"
		case "help":
			c.Short = "all about a command"
		}
	}
	return root
}

func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	next := "Type: fairlead help"
	if c.HasParent() {
		next = "Type: " + c.CommandPath() + " --help"
	}
	if s := c.SuggestionsFor(args[0]); len(s) > 0 {
		next = "Did you mean: " + c.CommandPath() + " " + s[0]
	}
	return &usageError{fmt.Sprintf("there is no command %q", strings.TrimPrefix(c.CommandPath()+" "+args[0], "fairlead ")), next}
}

// topics are pages of help that are no commands.
func (a *app) topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "environment", Short: "the variables that fairlead reads", Long: "Fairlead reads these variables:\n\n" + environmentHelp},
		{Use: "exit-codes", Short: "what the exit codes mean", Long: "The exit codes:\n\n" + exitHelp},
	}
}

// usageTemplate is cobra's, with examples before the flags and less noise.
const usageTemplate = `Usage:
  {{if .Runnable}}{{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name 12}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasHelpSubCommands}}

Help on:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name 12}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableSubCommands}}

"{{if .HasParent}}{{.CommandPath}} COMMAND --help{{else}}{{.CommandPath}} help COMMAND{{end}}" says more, with examples.{{end}}
`

// want checks the number of a command's words.
func want(min, max int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < min:
			return &usageError{"usage: " + c.UseLine(), "Type: " + c.CommandPath() + " --help"}
		case max >= 0 && len(args) > max:
			return &usageError{fmt.Sprintf("too many words, from %q on; usage: %s", args[max], c.UseLine()), "Type: " + c.CommandPath() + " --help"}
		}
		return nil
	}
}

// printJSON prints a value in the form in which results are printed.
func (a *app) printJSON(v any) error {
	raw, err := json.MarshalIndent(v, "", "    ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, string(raw))
	return err
}

// terminal tells whether a person is likely to look at a stream.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}

// say tells a person what was done; a program sees the exit code.
func (a *app) say(format string, args ...any) {
	if terminal(a.stderr) && !a.json {
		fmt.Fprintf(a.stderr, format+"\n", args...)
	}
}
