package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

const agentLong = `Agent connects the containers of this host to those of the other hosts in the
cluster. It reads the desired state from the cluster's store, keeps routes, tunnels and
rules in this host's kernel in that state, claims blocks of addresses for this host, and
reports this node to the store.

Each key of the configuration file can also be given as a flag, or in the environment as
FAIRLEAD_AGENT_ and the key: FAIRLEAD_AGENT_NODE. A flag overrides the environment, and
the environment overrides the file.

Containers keep running when the agent stops: what it created stays in place.`

const agentExample = `  fairlead agent                                   # with /etc/fairlead/agent.yaml
  fairlead agent --store-etcd-endpoints http://10.0.0.1:2379 \
      --network-config '{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true}'
  fairlead agent --network-file net-conf.json      # with flannel's configuration
  fairlead agent status                            # show the agent of this host`

// agentFlags are the flags by which a command finds the cluster.
type agentFlags struct {
	path   string
	set    *pflag.FlagSet // a subcommand may have its own flag with one of the names
	values map[string]*string
}

// add adds the flags to a command. Only "agent" gets all of them; the others get those that lead to the store.
func (f *agentFlags) add(c *cobra.Command) {
	agent := c.Name() == "agent"
	flags := c.PersistentFlags()
	f.set = flags
	flags.StringVar(&f.path, "config", config.DefaultPath, "Configuration file of the agent.")
	_ = c.MarkPersistentFlagFilename("config", "yaml", "json")
	f.values = map[string]*string{}
	for _, s := range config.Settings() {
		if agent || strings.HasPrefix(s.Key, "store.") || s.Key == "flannel.prefix" {
			f.values[s.Key] = flags.String(s.Flag(), "", s.About)
			mayBeEmpty(flags, s.Flag()) // it gives the setting its default
		}
	}
	if agent {
		flags.StringVar(f.values["network"], "network", "", "Old name of --network-config.")
		_ = flags.MarkHidden("network")
		mayBeEmpty(flags, "network")
	}
}

// given returns the value of a setting's flag, if the user gave the flag.
func (f *agentFlags) given(s config.Setting) (string, bool) {
	if f.values[s.Key] == nil {
		return "", false
	}
	return *f.values[s.Key], f.set.Changed(s.Flag()) || s.Key == "network" && f.set.Changed("network")
}

// agentConfig reads the configuration from the file, the environment and the flags.
func (a *app) agentConfig(f *agentFlags) (*config.Config, error) {
	var empty []config.Setting
	for _, s := range config.Settings() {
		if v, ok := f.given(s); ok && v == "" {
			empty = append(empty, s)
		}
	}
	c, err := config.Load(f.path, func(name string) string {
		for _, s := range config.Settings() {
			if v, ok := f.given(s); ok && s.Variable() == name {
				return v
			}
		}
		return a.getenv(name)
	}, empty...)
	if e, ok := errors.AsType[*config.SettingError](err); ok {
		if v, ok := f.given(e.Setting); ok {
			return nil, &usageError{"--" + e.Setting.Flag() + " " + v + ": " + e.Unwrap().Error(), "Type: fairlead agent --help"}
		}
	}
	if err != nil {
		return nil, err
	}
	return c, f.storeProblem(c, empty)
}

// storeProblem reports a flag that names no store, as with an unset variable of a script, or a file that is not the store.
func (f *agentFlags) storeProblem(c *config.Config, empty []config.Setting) error {
	file := *f.values["store.file"]
	for _, s := range empty {
		if c.Store.IsFile() && file == "" && (s.Key == "store.etcd.endpoints" || s.Key == "store.kubernetes.kubeconfig") {
			return &usageError{"--" + s.Flag() + " is empty", "For the store in a file, add --store-file FILE"}
		}
	}
	if file != "" && !c.Store.IsFile() {
		return &usageError{"--store-file " + file + ": the configuration names another store", `For the file, add --store-etcd-endpoints "" --store-kubernetes-kubeconfig ""`}
	}
	return nil
}

// clusterConfig returns the configuration for a command that reads the store. If no file, variable or flag names a
// store, it asks the agent of this host for its store. If the host may have an agent whose store is not known, that is
// an error.
func (a *app) clusterConfig(f *agentFlags) (*config.Config, error) {
	conf, err := a.agentConfig(f)
	if err != nil || !conf.Store.IsFile() || f.set.Changed("store-file") || conf.Store.File != config.DefaultStore(a.getenv) {
		return conf, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var of config.Config
	dir := local.Open(a.libDir(), a.runDir())
	err = dir.Call(ctx, local.OpStore, struct{}{}, &of)
	if ctx.Err() != nil {
		err = &local.AwayError{Socket: dir.Socket(), Err: fmt.Errorf("no answer within %v", askTimeout)}
	}
	switch {
	case err == nil:
		conf.Node, conf.Store, conf.Flannel.Prefix, conf.Policy = of.Node, of.Store, of.Flannel.Prefix, of.Policy
	case errors.Is(err, syscall.ECONNREFUSED): // the agent ended without removing its socket
		if _, e := os.Stat(conf.Store.File); e != nil {
			return nil, fmt.Errorf("find the store of this host's agent: %w\n%s", err, nameStore)
		}
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("find the store of this host's agent: %w", err)
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("find the store of this host's agent: %w\n%s", err, nameStore)
	}
	if k := &conf.Store.Kubernetes; k.Kubeconfig == config.InCluster && a.getenv("KUBERNETES_SERVICE_HOST") == "" {
		// The agent has a pod's service account, and this command has none.
		k.Kubeconfig = strings.Join(a.kubeconfigs(), string(filepath.ListSeparator))
	}
	return conf, nil
}

// nameStore is the advice of commands that do not find the store.
const nameStore = "Name the store with --store-kubernetes-kubeconfig, --store-etcd-endpoints or --store-file, or in " + config.DefaultPath

// kubeconfigs returns the files that kubectl would merge.
func (a *app) kubeconfigs() []string {
	list := slices.DeleteFunc(filepath.SplitList(a.getenv("KUBECONFIG")), func(path string) bool { return path == "" })
	if len(list) == 0 {
		return []string{filepath.Join(a.getenv("HOME"), ".kube", "config")}
	}
	return list
}

// askTimeout limits the wait for the agent's answer.
const askTimeout = 5 * time.Second

// agentGC is the agent's GOGC: it is idle most of the time and runs on every host, so memory matters more than time.
// GOGC in the environment overrides it.
const agentGC = 50

// logFlags are the flags of a log.
type logFlags struct {
	level, format string
	verbose       bool
}

func (l *logFlags) add(flags *pflag.FlagSet) {
	l.level, l.format = "info", "text"
	flags.Var(&choice{&l.level, []string{"debug", "info", "warn", "error"}}, "log-level", "Log messages of this level and above: debug, info, warn or error. With debug, every created object is logged.")
	flags.Var(&choice{&l.format, []string{"text", "json"}}, "log-format", "Format of the log lines: text or json.")
	flags.BoolVarP(&l.verbose, "verbose", "v", false, "Old name of --log-level debug.")
	_ = flags.MarkHidden("verbose")
}

func (l *logFlags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.level)) // the flag accepts valid levels only
	if l.verbose {
		level = slog.LevelDebug
	}
	o := &slog.HandlerOptions{Level: level}
	if l.format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

func (a *app) agentCommand() *cobra.Command {
	f, l := &agentFlags{}, &logFlags{}
	c := &cobra.Command{
		Use: "agent", Short: "connect this host's containers to those of other hosts", GroupID: "cluster", Long: agentLong, Example: agentExample,
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := a.agentConfig(f)
			if err != nil {
				return err
			}
			if conf.SysctlDir != "" {
				kernel.UseSysctlDir(conf.SysctlDir)
			}
			s, err := conf.Open()
			if err != nil {
				return err
			}
			defer s.Close()
			program, err := os.Executable()
			if err != nil {
				return err
			}
			log := l.logger(a.stderr)
			klog.SetSlogLogger(log) // the client of the Kubernetes API logs by klog
			if conf.Store.IsFile() {
				log.Info("the store is a file, so the cluster has only this host", "file", conf.Store.File)
			}
			for _, name := range config.Unknown(os.Environ()) {
				log.Warn("ignoring an environment variable that is not a setting of the agent", "name", name, "see", "fairlead agent --help")
			}
			if a.getenv("GOGC") == "" {
				debug.SetGCPercent(agentGC)
			}
			return agent.Run(c.Context(), agent.Options{Config: conf, Store: s, Lib: a.libDir(), Run: a.runDir(), Log: log, Version: cni.Release(), Program: []string{program}})
		},
	}
	f.add(c)
	l.add(c.Flags())
	c.AddCommand(a.agentStatusCommand())
	return c
}

// runDir returns the directory of runtime state.
func (a *app) runDir() string {
	if dir := a.getenv(attach.RootVariable); dir != "" {
		return dir
	}
	return attach.DefaultRoot
}
