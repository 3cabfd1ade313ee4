package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/podnet"
)

const podLong = `Pod gives pods their networks as a container runtime does: the default network and
more, host ports, bandwidth, fixed addresses, by flags, by a manifest of Kubernetes or
by annotations. What is done is noted before, so that teardown needs nothing but the
pod's ID, whatever happened meanwhile.

POD is the pod's ID; without --netns it is also its network namespace's name as
"ip netns" knows it. Networks are those of NETCONFPATH, which may be several
directories with colons between; the first file by name has the default network.`

const podExample = `  ip netns add web
  fairlead pod setup web --publish 8080:80 --network my-network --network dbnet
  fairlead pod status web
  fairlead pod teardown web`

// podFlags are those that all commands on pods have.
type podFlags struct {
	timeout                time.Duration
	metricsFile, traceFile string
	defaultNetwork         string
	lenient                bool
}

func (a *app) podCommand() *cobra.Command {
	f := &podFlags{}
	c := &cobra.Command{
		Use: "pod COMMAND", DisableFlagsInUseLine: true, Short: "all networks of a pod, as a runtime sets them up", GroupID: "attach", Long: podLong, Example: podExample,
		Args: cobra.ArbitraryArgs, RunE: unknownCommand,
	}
	c.AddGroup(&cobra.Group{ID: "pod", Title: "Pods:"}, &cobra.Group{ID: "node", Title: "This host:"})
	flags := c.PersistentFlags()
	flags.DurationVar(&f.timeout, "timeout", podnet.DefaultTimeout, "give up after this time; what was begun is then undone, in a time of its own")
	flags.StringVar(&f.metricsFile, "metrics-file", "", "write the command's metrics to this file, for node_exporter's textfile collector")
	flags.StringVar(&f.traceFile, "trace-file", "", "append the command's trace to this file, a line of OTLP's JSON")
	flags.StringVar(&f.defaultNetwork, "default-network", "", "the default network by name (default: that of the first file)")
	_ = c.RegisterFlagCompletionFunc("default-network", a.completeNetworks)
	c.AddCommand(a.podSetUp(f), a.podTearDown(f), a.podCheck(f), a.podStatus(f), a.podAttach(f), a.podDetach(f))
	c.AddCommand(a.podList(f), a.podGC(f), a.podWatch(f))
	return c
}

// podRun makes what a command does with a Manager its RunE.
func (a *app) podRun(c *cobra.Command, f *podFlags, do func(context.Context, *podnet.Manager, []string) error) *cobra.Command {
	c.GroupID = "pod"
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		o, end, err := a.observers(c.Context(), f)
		if err != nil {
			return err
		}
		m, err := podnet.New(a.podOptions(f, o))
		if err != nil {
			return err
		}
		defer a.progress("pod " + strings.Join(append([]string{c.Name()}, args...), " "))()
		err = do(o.ctx, m, args)
		if err2 := end(m); err == nil {
			return err2
		} else if err2 != nil {
			fmt.Fprintln(a.stderr, "fairlead: warning:", err2)
		}
		return err
	}
	return c
}

func (a *app) podOptions(f *podFlags, o *podObservers) podnet.Options {
	return podnet.Options{
		ConfDirs: filepath.SplitList(a.confDir()), DefaultNetwork: f.defaultNetwork, PluginDirs: a.pluginPath(), Exec: inside(),
		CacheDir: a.getenv("FAIRLEAD_LIB"), RunDir: a.getenv(attach.RootVariable), StateDir: a.podDir(),
		Timeout: f.timeout, LeaveUnsupported: f.lenient, RemoveLeft: a.removeLeft, Observers: o.list,
		Warn: func(msg string, err error) { fmt.Fprintf(a.stderr, "fairlead: warning: %s: %v\n", msg, err) },
	}
}

// podDir is where the notes of pods are.
func (a *app) podDir() string {
	if root := a.getenv(attach.RootVariable); root != "" {
		return filepath.Join(root, "pods")
	}
	return podnet.DefaultStateDir
}

func (a *app) podTearDown(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "teardown POD...", Short: "take pods off all their networks",
		Long: "Teardown removes what setup made, by the pod's ID alone: the namespace, the\n" +
			"configuration and the caches may be gone, setup may have been cut off. It works\n" +
			"twice. It goes on after an error, and what failed is kept for the next try.",
		Example: "  fairlead pod teardown web",
		Args:    want(1, -1), ValidArgsFunction: a.completePods,
	}
	return a.podRun(c, f, func(ctx context.Context, m *podnet.Manager, ids []string) error {
		return a.eachPod(ids, "torn down", func(id string) error { return m.TearDownPod(ctx, id) })
	})
}

func (a *app) podCheck(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "check POD...", Short: "compare pods' networks with what was made",
		Long:    "Check asks every plugin of every network of a pod, and reports each difference.",
		Example: "  fairlead pod check web",
		Args:    want(1, -1), ValidArgsFunction: a.completePods,
	}
	return a.podRun(c, f, func(ctx context.Context, m *podnet.Manager, ids []string) error {
		return a.eachPod(ids, "as it was made", func(id string) error { return m.CheckPod(ctx, id) })
	})
}

func (a *app) podDetach(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "detach POD INTERFACE", Short: "take a running pod off one network",
		Long:    "Detach removes one interface of a pod, by its name in there.",
		Example: "  fairlead pod detach web net1",
		Args:    want(2, 2), ValidArgsFunction: a.completeInterface,
	}
	return a.podRun(c, f, func(ctx context.Context, m *podnet.Manager, args []string) error {
		return a.eachPod(args[:1], args[1]+" detached", func(id string) error { return m.Detach(ctx, id, args[1]) })
	})
}
