package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/podnet"
)

const podLong = `Pod sets up all networks of a pod as a container runtime does: the default network and
others, host ports, bandwidth limits and fixed addresses, by flags, by a Kubernetes manifest or by
annotations. A pod gets all of its networks or, if one fails, none. Pod records each step before it
runs it, so teardown needs nothing but the pod's ID.

POD is the pod's ID (CNI_CONTAINERID). Without --netns it is also the name of its network namespace, as
"ip netns" shows it. NETCONFPATH may have several directories, separated by colons. The first file by
name (.conflist, .conf, .json) is the default network. docs/pods.md describes the annotations,
metrics and traces.`

const podExample = `  ip netns add web
  fairlead pod setup web --publish 8080:80 --network my-network --network dbnet
  fairlead pod status web
  fairlead pod teardown web`

// podFlags are the flags of all pod commands.
type podFlags struct {
	timeout                time.Duration
	metricsFile, traceFile string
	defaultNetwork         string
	lenient                bool
}

func (a *app) podCommand() *cobra.Command {
	f := &podFlags{}
	c := &cobra.Command{
		Use: "pod COMMAND", DisableFlagsInUseLine: true, Short: "set up and tear down all networks of a pod", GroupID: "attach", Long: podLong, Example: podExample,
		Args: cobra.ArbitraryArgs, RunE: groupCommand,
	}
	c.AddGroup(&cobra.Group{ID: "pod", Title: "Pods:"}, &cobra.Group{ID: "node", Title: "This host:"})
	flags := c.PersistentFlags()
	durationVar(flags, &f.timeout, "timeout", podnet.DefaultTimeout, "Stop after this time, and undo what was begun.")
	flags.StringVar(&f.metricsFile, "metrics-file", "", "Write the metrics of the command and of this host's pods to this file, for node_exporter's textfile collector.")
	flags.StringVar(&f.traceFile, "trace-file", "", "Append the trace of the command to this file, as a line of OTLP JSON (default: send it to OTEL_EXPORTER_OTLP_ENDPOINT, if that is set).")
	flags.StringVar(&f.defaultNetwork, "default-network", "", "Name of the default network (default: the network of the first file).")
	_ = c.RegisterFlagCompletionFunc("default-network", a.completeNetworks)
	c.AddCommand(a.podSetUp(f), a.podTearDown(f), a.podCheck(f), a.podStatus(f), a.podAttach(f), a.podDetach(f))
	c.AddCommand(a.podList(f), a.podGC(f), a.podWatch(f))
	return c
}

// withManager sets the RunE of a command to a function that gets a Manager.
func (a *app) withManager(c *cobra.Command, f *podFlags, do func(context.Context, *podnet.Manager, []string) error) *cobra.Command {
	c.GroupID = "pod"
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		o, end, err := a.observers(c.Context(), f)
		if err != nil {
			return err
		}
		m, err := podnet.New(a.podOptions(f, o.list))
		if err != nil {
			return err
		}
		defer a.progress("pod " + strings.Join(append([]string{c.Name()}, args...), " "))()
		err = do(o.ctx, m, args)
		if errors.Is(err, os.ErrNotExist) && strings.HasSuffix(err.Error(), " is not set up") {
			err = fmt.Errorf("%w\nType: fairlead pod list", err)
		}
		if err := end(m); err != nil { // the pods are as the command says
			fmt.Fprintln(a.stderr, "fairlead: warning:", err)
		}
		return err
	}
	return c
}

func (a *app) podOptions(f *podFlags, observers []podnet.Observer) podnet.Options {
	return podnet.Options{
		ConfDirs: filepath.SplitList(a.confDir()), DefaultNetwork: f.defaultNetwork, PluginDirs: a.pluginPath(), Exec: builtin.Exec(),
		CacheDir: a.getenv("FAIRLEAD_LIB"), RunDir: a.getenv(attach.RootVariable), StateDir: a.podDir(),
		Timeout: f.timeout, IgnoreUnsupported: f.lenient, RemoveLeftover: a.removeLeftover, Observers: observers,
		Warn: func(msg string, err error) { fmt.Fprintf(a.stderr, "fairlead: warning: %s: %v\n", msg, err) },
	}
}

// podDir returns the directory with the state of pods.
func (a *app) podDir() string {
	if root := a.getenv(attach.RootVariable); root != "" {
		return filepath.Join(root, "pods")
	}
	return podnet.DefaultStateDir
}

func (a *app) podTearDown(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "teardown POD...", Short: "remove pods from all their networks",
		Long: "Teardown removes what setup created. It needs only the pod's ID: it also works if the\n" +
			"namespace, the configuration and the caches are gone, after an interrupted setup, and twice.\n" +
			"It continues after an error, and keeps what failed for the next call.",
		Example: "  fairlead pod teardown web",
		Args:    want(1, -1), ValidArgsFunction: a.completePods,
	}
	return a.withManager(c, f, func(ctx context.Context, m *podnet.Manager, ids []string) error {
		return a.eachPod(ids, "torn down", func(id string) error { return m.TearDownPod(ctx, id) })
	})
}

func (a *app) podCheck(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "check POD...", Short: "verify that the networks of pods are unchanged",
		Long:    "Check asks every plugin of every network of a pod, and reports each difference.",
		Example: "  fairlead pod check web",
		Args:    want(1, -1), ValidArgsFunction: a.completePods,
	}
	return a.withManager(c, f, func(ctx context.Context, m *podnet.Manager, ids []string) error {
		return a.eachPod(ids, "unchanged", func(id string) error { return m.CheckPod(ctx, id) })
	})
}

func (a *app) podDetach(f *podFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "detach POD INTERFACE", Short: "remove a running pod from one network",
		Long:    "Detach removes one interface of a pod, by its name in the pod.",
		Example: "  fairlead pod detach web net1",
		Args:    want(2, 2), ValidArgsFunction: a.completeInterface,
	}
	return a.withManager(c, f, func(ctx context.Context, m *podnet.Manager, args []string) error {
		return a.eachPod(args[:1], args[1]+" detached", func(id string) error { return m.Detach(ctx, id, args[1]) })
	})
}

// eachPod does something for each pod, and continues after an error.
func (a *app) eachPod(ids []string, message string, do func(id string) error) error {
	var errs []error
	for _, id := range ids {
		err := do(id)
		if err == nil {
			err = a.donePod(id, message)
		} else if len(ids) > 1 && !strings.HasPrefix(err.Error(), "pod "+id) {
			err = fmt.Errorf("pod %s: %w", id, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *app) donePod(id, message string) error {
	if a.structured() {
		return a.printLine(map[string]string{"pod": id, "message": message})
	}
	a.say("pod %s: %s", id, message)
	return nil
}
