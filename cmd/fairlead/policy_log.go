package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/nflog"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// policyLogFlags are the flags of "policy log".
type policyLogFlags struct {
	policyFlags
	pod, policy string
	count       int
	limit       time.Duration
}

func (a *app) policyLog(agent *agentFlags) *cobra.Command {
	f := &policyLogFlags{policyFlags: policyFlags{agent: agent}}
	c := &cobra.Command{
		Use: "log", Short: "show the packets that policies drop on this node, as they are dropped",
		Long: "Log shows the packets that policies drop on this node, with the pods and the policy, until Ctrl-C.\n" +
			fmt.Sprintf("The kernel reports at most %d packets a second for each policy, and log prints the number of\n", policy.LogRate) +
			"packets that it did not report. Only one \"policy log\" can run in each network namespace: one for the host, and one\n" +
			"for each isolated network. It needs root. The names of pods come from the cluster or from files. Without either, log\n" +
			"shows addresses.",
		Example: "  fairlead policy log\n  fairlead policy log --pod shop/db --for 1m -o json\n" +
			"  kubectl exec -n fairlead-system ds/fairlead -- fairlead policy log --count 10",
		Args: want(0, 0),
	}
	f.add(c)
	f.addNetwork(c)
	c.Flags().StringVar(&f.pod, "pod", "", "Show only packets from or to this pod, `NAMESPACE/NAME`.")
	c.Flags().StringVar(&f.policy, "policy", "", "Show only packets that this policy drops: `NAME` of a ClusterNetworkPolicy, or NAMESPACE/NAME of a NetworkPolicy.")
	c.Flags().IntVar(&f.count, "count", 0, "End after `NUMBER` packets (default: no limit).")
	c.Flags().DurationVar(&f.limit, "for", 0, "End after `DURATION`, such as 30s or 5m (default: no limit).")
	c.RunE = func(c *cobra.Command, _ []string) error { return a.logPolicy(c.Context(), f) }
	return c
}

func (a *app) logPolicy(ctx context.Context, f *policyLogFlags) error {
	if f.count < 0 || f.limit < 0 {
		return &usageError{"--count and --for must not be negative", "Type: fairlead policy log --help"}
	}
	var listener *nflog.Listener
	var p *nftable.Programmer
	var errListen error
	err := f.inNetwork(func() (err error) {
		// First: the port ID of the first socket is that of the process, which the error of the next "policy log"
		// names.
		listener, errListen = nflog.Open(policy.LogGroup)
		p, err = nftable.Open()
		return err
	})
	if listener != nil {
		defer listener.Close()
	}
	if err != nil {
		return err
	}
	defer p.Close()
	l := &dropLog{a: a, f: f, table: p}
	if err := l.unreported(); err != nil {
		return err
	}
	if errListen != nil {
		return fmt.Errorf("%w\nIt needs root, nfnetlink_log in the kernel, and no other program that receives dropped packets on this node", errListen)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	names, err := a.names(ctx, f)
	if err != nil {
		return err
	}
	l.names, l.done = names, cancel
	if f.limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, f.limit)
		defer cancel()
	}
	return l.run(ctx, listener)
}

// names returns a function for the owner of an address: a pod, or a node.
func (a *app) names(ctx context.Context, f *policyLogFlags) (func(netip.Addr) (pod, node string), error) {
	if len(f.files) > 0 {
		w, err := a.world(ctx, &f.policyFlags)
		if err != nil {
			return nil, err
		}
		return w.Names(), nil
	}
	if conf := a.withoutKubernetes(&f.policyFlags); conf != nil {
		return a.localNames(ctx, &f.policyFlags, conf)
	}
	client, err := a.connect(&f.kubernetesFlags)
	if errors.Is(err, os.ErrNotExist) && f.kubeconfig == "" {
		if f.pod != "" {
			return nil, fmt.Errorf("--pod needs the names of pods: %w", err)
		}
		fmt.Fprintln(a.stderr, "showing addresses only: there is no kubeconfig, and no -f")
		return func(netip.Addr) (pod, node string) { return "", "" }, nil
	}
	if err != nil {
		return nil, err
	}
	peers, err := a.peers(ctx, &f.policyFlags)
	if err != nil {
		return nil, err
	}
	n := enforce.FollowNames(ctx, enforce.Options{Config: client.Config(), Log: slog.New(slog.DiscardHandler)}, f.network, peers[f.network])
	a.nameNodes(ctx, &f.policyFlags, n)
	a.waitForNames(ctx, n, "the Kubernetes API at "+client.Config().Host)
	return n.Name, nil
}

// localNames follows the containers of this host, and those in the agents' store.
func (a *app) localNames(ctx context.Context, f *policyFlags, conf *config.Config) (func(netip.Addr) (pod, node string), error) {
	o := a.enforceOptions(conf)
	if o.Directory == "" {
		s, err := a.openStore(f.agent, readsStore)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = s.Close() })
		o.Store = s
	}
	peers, err := a.peers(ctx, f)
	if err != nil {
		return nil, err
	}
	n := enforce.FollowNames(ctx, o, f.network, peers[f.network])
	if o.Store != nil {
		a.nameNodes(ctx, f, n)
	}
	a.waitForNames(ctx, n, "the store")
	return n.Name, nil
}

// nameNodes names the nodes with the addresses that they have in the pod network now. Without them, these have no names.
func (a *app) nameNodes(ctx context.Context, f *policyFlags, n *enforce.Names) {
	if f.network != "" {
		return
	}
	if snap, err := a.networks(ctx, f); err == nil {
		n.SetPodAddresses(enforce.PodAddressesOf(snap.Blocks))
	}
}

// waitForNames waits a while until all names are known.
func (a *app) waitForNames(ctx context.Context, n *enforce.Names, source string) {
	for end := time.Now().Add(clusterTimeout); !n.Synced(); {
		if time.Now().After(end) {
			fmt.Fprintf(a.stderr, "showing addresses only, until %s answers\n", source)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}
