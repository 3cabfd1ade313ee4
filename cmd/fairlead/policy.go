package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/manifest"
	"github.com/fairlead/fairlead/agent/policy/stored"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/kernel/netns"
)

// policyFlags say where the policies and the pods are.
type policyFlags struct {
	kubernetesFlags
	agent   *agentFlags
	files   []string
	network string // isolated
}

func (f *policyFlags) add(c *cobra.Command) {
	f.addAccess(c)
	c.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "`FILE` with policies, pods, namespaces and nodes in YAML or JSON, instead of a cluster or the agents' store. - is standard input. May be repeated.")
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json") // the flag exists
}

// addNetwork adds the flag of commands about an isolated network.
func (f *policyFlags) addNetwork(c *cobra.Command) {
	c.Flags().StringVar(&f.network, "network", "", "Isolated network `NAME`, instead of the networks of the host.")
}

// peers returns the peers of each isolated network, as the agents' store has them. Files have none.
func (a *app) peers(ctx context.Context, f *policyFlags) (map[string][]string, error) {
	if f.network == "" || len(f.files) > 0 {
		return nil, nil
	}
	snap, err := a.snapshot(ctx, f, cluster.NetworksPrefix)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for name := range snap.Networks {
		out[name] = snap.PeersOf(name)
	}
	return out, nil
}

// snapshot reads what the agents' store has with a prefix.
func (a *app) snapshot(ctx context.Context, f *policyFlags, prefixes ...string) (*cluster.Snapshot, error) {
	s, err := a.policyStore(f)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	snap, _, err := admin.SnapshotBelow(ctx, s, prefixes...)
	return snap, err
}

// networks reads the cluster's networks, and the blocks of its nodes.
func (a *app) networks(ctx context.Context, f *policyFlags) (*cluster.Snapshot, error) {
	return a.snapshot(ctx, f, cluster.NetworksPrefix, cluster.BlocksPrefix, cluster.NodesPrefix)
}

// policyStore opens the agents' store: in Kubernetes, if the policies are there.
func (a *app) policyStore(f *policyFlags) (store.Store, error) {
	if conf := a.withoutKubernetes(f); conf != nil {
		return a.openStoreOf(conf, readsStore)
	}
	client, err := a.connect(&f.kubernetesFlags)
	if err != nil {
		return nil, err
	}
	return kube.Open(kube.Options{Config: client.Config()})
}

// inNetwork runs f in the network namespace of the chosen isolated network on this host, or in the host's.
func (f *policyFlags) inNetwork(do func() error) error {
	if f.network == "" {
		return do()
	}
	ns, err := netns.Open(local.NetnsPath(f.network))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("this host has no isolated network %s: its namespace exists only while the host has containers on it. To list the networks, type: fairlead network list", f.network)
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(do)
}

func (a *app) policyCommand() *cobra.Command {
	f := &agentFlags{}
	c := &cobra.Command{
		Use: "policy COMMAND", DisableFlagsInUseLine: true, Short: "check and explain network policies, and show what they drop", GroupID: "cluster",
		Long: "Policy reads the network policies of a Kubernetes cluster, of the agents' store, or of files. It\n" +
			"says what they select, which rule decides about a connection, and which packets a node drops. See\n" +
			"docs/policy.md and, without Kubernetes, docs/policy-files.md.",
		Example: "  fairlead policy check\n  fairlead policy explain shop/web shop/db 5432\n  fairlead policy log --pod shop/db",
		Args:    want(0, 0), RunE: groupCommand,
	}
	f.add(c)
	c.AddCommand(a.policyCheck(f), a.policyExplain(f), a.policyLog(f), a.policyStatus(f), a.policyApply(f), a.policyList(f), a.policyDelete(f))
	return c
}

func (a *app) policyCheck(agent *agentFlags) *cobra.Command {
	f := &policyFlags{agent: agent}
	c := &cobra.Command{
		Use: "check", Short: "find invalid parts of policies, and list what they select",
		Long: "Check lists the policies in the order in which they apply, with the pods that each one selects\n" +
			"now, and everything that is invalid. An invalid rule allows nothing. Exit code 3: a policy has an\n" +
			"invalid part.",
		Example: "  fairlead policy check\n  fairlead policy check -f policies.yaml\n  kubectl get netpol,pod,ns -A -o yaml | fairlead policy check -f -",
		Args:    want(0, 0),
	}
	f.add(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		w, err := a.world(c.Context(), f)
		if err != nil {
			return err
		}
		list := w.Selections()
		if err := a.printSelections(list); err != nil {
			return err
		}
		for _, s := range list {
			if len(s.Problems) > 0 {
				return silentError{exitInvalid}
			}
		}
		return nil
	}
	return c
}

func (a *app) printSelections(list []policy.Selection) error {
	if a.structured() {
		return a.printData(list)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.stdout, "No policies.")
		return err
	}
	const shown = 3 // endpoints of a policy
	t := table{{"POLICY", "PODS", "FOR EXAMPLE"}}
	for _, s := range list {
		examples := strings.Join(s.Endpoints[:min(len(s.Endpoints), shown)], ", ")
		t = append(t, []string{s.Policy, strconv.Itoa(len(s.Endpoints)), examples})
	}
	if err := t.print(a.stdout); err != nil {
		return err
	}
	for _, s := range list {
		for _, p := range s.Problems {
			fmt.Fprintf(a.stdout, "%s: %s\n", s.Policy, p)
		}
	}
	return nil
}

// world reads the world of the chosen isolated network, or of the host's.
func (a *app) world(ctx context.Context, f *policyFlags) (*policy.World, error) {
	w, err := a.readWorld(ctx, f)
	if err != nil || f.network == "" {
		return w, err
	}
	peers, err := a.peers(ctx, f)
	return w.InNetwork(f.network, peers), err
}

// readWorld reads the files, the agents' store or directory, or the cluster.
func (a *app) readWorld(ctx context.Context, f *policyFlags) (*policy.World, error) {
	if len(f.files) > 0 {
		w, skipped, err := manifest.Load(a.stdin, f.files...)
		if len(skipped) > 0 {
			fmt.Fprintln(a.stderr, "skipped objects of other kinds:", skipped)
		}
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	if conf := a.withoutKubernetes(f); conf != nil {
		return a.localWorld(ctx, f, conf)
	}
	client, err := a.connect(&f.kubernetesFlags)
	if errors.Is(err, os.ErrNotExist) && f.kubeconfig == "" {
		err = fmt.Errorf("%w\nWithout Kubernetes, read files with -f, or run the command on a host whose agent enforces policy", err)
	}
	if err != nil {
		return nil, err
	}
	w := &policy.World{Namespaces: map[string]map[string]string{}}
	err = enforce.Objects(ctx, client.Config(), func(o runtime.Object) error {
		w.Add(o)
		return nil
	})
	return w, client.Explain("read the policies", err)
}

// withoutKubernetes returns the agent's configuration if policies are in the agents' store or in a directory of this
// host, else nil.
func (a *app) withoutKubernetes(f *policyFlags) *config.Config {
	if f.kubeconfig != "" || f.context != "" {
		return nil
	}
	conf, err := a.clusterConfig(f.agent)
	if err != nil || conf.Store.Kubernetes.Kubeconfig != "" {
		return nil
	}
	if named := f.agent.set.Changed("store-file") || f.agent.set.Changed("store-etcd-endpoints"); !named && !conf.Policy.Enabled {
		return nil
	}
	return conf
}

func (a *app) localWorld(ctx context.Context, f *policyFlags, conf *config.Config) (*policy.World, error) {
	if conf.Policy.Directory != "" {
		return a.enforceOptions(conf).World()
	}
	s, err := a.openStore(f.agent, readsStore)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	w, invalid, err := stored.World(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, x := range invalid {
		fmt.Fprintf(a.stderr, "ignored: %v\n", x)
	}
	if err := a.enforceOptions(conf).AddThisHost(w); err != nil {
		fmt.Fprintf(a.stderr, "only the containers in the store are known: %v\n", err)
	}
	return w, nil
}

// enforceOptions returns where the policies and containers of this host are.
func (a *app) enforceOptions(conf *config.Config) enforce.Options {
	return enforce.Options{Directory: conf.Policy.Directory, Node: conf.Node, Attachments: podstate.Open(local.Open(a.libDir(), a.runDir())), Log: slog.New(slog.DiscardHandler)}
}
