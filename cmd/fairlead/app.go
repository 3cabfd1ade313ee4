package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
)

// app holds what all commands share: the streams, the environment and the output format.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	format         format
}

func newApp() *app {
	return &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
}

const rootLong = `Fairlead attaches containers to networks. It runs the plugins of a CNI network
configuration for a network namespace, verifies and removes what they created, and
shows what is attached.

NETWORK is the name of a network in NETCONFPATH, or a configuration file: an argument
with a slash or with the extension .conflist, .conf or .json is a file. NETNS is the
path of a network namespace, or its name as "ip netns" shows it.`

const rootExample = `  ip netns add web                     # create a namespace, as a container has one
  fairlead add my-network web          # attach it
  fairlead list                        # show what is attached
  fairlead check my-network web        # verify the attachment
  fairlead del my-network web          # detach it`

const environmentHelp = `  NETCONFPATH   directory of network configurations; default /etc/cni/net.d
  CNI_PATH      directories of plugins; default: cni/ next to this program, if it
                exists, and /opt/cni/bin
  CNI_IFNAME    name of the interface in the container; default eth0
  CNI_ARGS      arguments for the plugins: KEY=VALUE;KEY=VALUE
  CAP_ARGS      capability arguments, JSON: {"portMappings": [{"hostPort": 8080,
                "containerPort": 80, "protocol": "tcp"}]}
  KUBECONFIG    kubeconfig files, separated by colons; default ~/.kube/config
  NO_COLOR      if set, demo prints no colors
  FAIRLEAD_AGENT_KEY  settings of the agent; see fairlead agent --help
  OTEL_EXPORTER_OTLP_ENDPOINT  destination of the traces of "fairlead pod", OTLP over
                HTTP, such as http://127.0.0.1:4318; default: no traces. The other
                OTEL_EXPORTER_OTLP_ variables have OpenTelemetry's meaning
  TRACEPARENT   parent span of the traces of "fairlead pod"
  FAIRLEAD_RUN  directory of runtime state; default /run/fairlead
  FAIRLEAD_LIB  directory of results and addresses; default /var/lib/cni`

// root returns the command tree.
func (a *app) root() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use: "fairlead COMMAND", DisableFlagsInUseLine: true, Short: "attach containers to networks", Long: rootLong, Example: rootExample,
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if version && len(args) == 0 {
				return a.printOwnVersion()
			}
			return groupCommand(c, args)
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.Flags().BoolVar(&version, "version", false, "Print the version of fairlead.")
	a.formatFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), noFiles))
	root.AddGroup(&cobra.Group{ID: "attach", Title: "Attachments:"}, &cobra.Group{ID: "look", Title: "Inspection:"},
		&cobra.Group{ID: "cluster", Title: "Several hosts:"}, &cobra.Group{ID: "more", Title: "More:"})
	root.AddCommand(a.addCommand(), a.checkCommand(), a.delCommand(), a.gcCommand(), a.repairCommand(), a.statusCommand(), a.podCommand())
	root.AddCommand(a.listCommand(), a.doctorCommand(), a.planCommand(), a.validateCommand(), a.versionCommand())
	root.AddCommand(a.agentCommand(), a.kubernetesCommand(), a.policyCommand(), a.nodeCommand(), a.networkCommand(), a.ipamCommand(), a.mapCommand())
	root.AddCommand(a.installCommand(), a.uninstallCommand(), a.migrateCommand(), a.fuseCommand(), a.dhcpCommand(), a.dockerCommand(), a.wireguardCommand())
	root.AddCommand(append(a.demoCommands(), a.demoClusterCommand())...)
	root.AddCommand(helpTopics()...)
	root.SetUsageTemplate(usageTemplate)
	completeCompletion(root)
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	describeHelpFlags(root)
	wrapDescriptions(root)
	return root
}

// progressStream returns the stream for progress, or nil if no person is watching it.
func (a *app) progressStream() io.Writer {
	if !terminal(a.stderr) || a.structured() {
		return nil
	}
	return a.stderr
}

// terminal reports whether a stream is a terminal.
func terminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
