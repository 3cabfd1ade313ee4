package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
)

const agentLong = `Agent joins the containers of this host to those of the cluster's other hosts: it
keeps routes, tunnels and rules in this host's kernel as the cluster's store wants
them, gives this host blocks of addresses, and tells the store of this node.

Each key of the configuration file can be given as a flag, or in the environment as
FAIRLEAD_AGENT_ and the flag's name: FAIRLEAD_AGENT_NODE. A flag counts more than the
environment, and that more than the file.

What the agent made stays when it ends: containers go on while it is upgraded.`

const agentExample = `  fairlead agent                                   # as /etc/fairlead/agent.yaml says
  fairlead agent --store-etcd-endpoints http://10.0.0.1:2379 \
      --network '{"subnets": [{"cidr": "10.244.0.0/16"}], "nat": true}'
  fairlead agent --network-file net-conf.json      # as flannel's users have it
  fairlead agent status                            # of the agent of this host`

// agentFlags are those of all commands that know the cluster.
type agentFlags struct {
	path   string
	set    *pflag.FlagSet // a command may have one of its own by the same name
	values map[string]*string
}

// add adds them to a command: of those that only ask the store, what leads to it.
func (f *agentFlags) add(c *cobra.Command) {
	agent := c.Name() == "agent"
	flags := c.PersistentFlags()
	f.set = flags
	flags.StringVar(&f.path, "config", config.DefaultPath, "the agent's configuration")
	_ = c.MarkPersistentFlagFilename("config", "yaml", "json")
	f.values = map[string]*string{}
	for _, s := range config.Settings() {
		if agent || strings.HasPrefix(s.Key, "store.") || s.Key == "flannel.prefix" {
			f.values[s.Key] = flags.String(s.Flag(), "", s.About)
		}
	}
}

// agentConfig reads the configuration as file, environment and flags say.
func (a *app) agentConfig(f *agentFlags) (*config.Config, error) {
	return config.Load(f.path, func(name string) string {
		for _, s := range config.Settings() {
			if s.Variable() == name && f.set.Changed(s.Flag()) {
				return *f.values[s.Key]
			}
		}
		return a.getenv(name)
	})
}

// clusterConfig is the configuration as commands that ask the store have it: where no
// file, variable or flag names a store, it is that of the agent which runs here.
func (a *app) clusterConfig(f *agentFlags) (*config.Config, error) {
	conf, err := a.agentConfig(f)
	if err != nil || len(conf.Store.Etcd.Endpoints) > 0 || f.set.Changed("store-file") || conf.Store.File != config.DefaultStore(a.getenv) {
		return conf, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var of config.Config
	if local.Open(a.libDir(), a.runDir()).Call(ctx, local.OpStore, struct{}{}, &of) == nil {
		conf.Node, conf.Store, conf.Flannel.Prefix = of.Node, of.Store, of.Flannel.Prefix
	}
	return conf, nil
}

// askTimeout is how long the agent may take to say where its store is.
const askTimeout = time.Second

// openStore opens the store of the cluster that this host is of.
func (a *app) openStore(f *agentFlags) (store.Store, error) {
	conf, err := a.clusterConfig(f)
	if err != nil {
		return nil, err
	}
	return conf.Open()
}

// agentGC has the agent's memory collected when half as much again is used: it seldom
// has anything to do, and is on every host. GOGC in the environment says otherwise.
const agentGC = 50

func (a *app) agentCommand() *cobra.Command {
	f := &agentFlags{}
	verbose := false
	c := &cobra.Command{
		Use: "agent", Short: "join this host's containers to those of other hosts", GroupID: "cluster", Long: agentLong, Example: agentExample,
		Args: want(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			conf, err := a.agentConfig(f)
			if err != nil {
				return err
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
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
			for _, name := range config.Unknown(os.Environ()) {
				log.Warn("the environment has what looks like a key of the agent's, and is none: it is not used", "name", name, "see", "fairlead agent --help")
			}
			if a.getenv("GOGC") == "" {
				debug.SetGCPercent(agentGC)
			}
			return agent.Run(c.Context(), agent.Options{Config: conf, Store: s, Lib: a.libDir(), Run: a.runDir(), Log: log, Version: cni.Release(), Program: []string{program}})
		},
	}
	f.add(c)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "say every object that is made")
	c.AddCommand(a.agentStatusCommand())
	return c
}

func (a *app) runDir() string {
	if dir := a.getenv(attach.RootVariable); dir != "" {
		return dir
	}
	return attach.DefaultRoot
}
