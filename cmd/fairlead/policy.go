package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/manifest"
)

// policyFlags say where the policies and the pods are.
type policyFlags struct {
	kubernetesFlags
	files []string
}

func (f *policyFlags) add(c *cobra.Command) {
	f.addAccess(c)
	c.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "`FILE` with policies, pods, namespaces and nodes in YAML or JSON, instead of a cluster. - is standard input. May be repeated.")
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json") // the flag exists
}

func (a *app) policyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "policy COMMAND", DisableFlagsInUseLine: true, Short: "check and explain network policies, and show what they drop", GroupID: "cluster",
		Long: "Policy reads the NetworkPolicies and ClusterNetworkPolicies of a Kubernetes cluster or of files. It\n" +
			"says what they select, which rule decides about a connection, and which packets a node drops. See\n" +
			"docs/policy.md.",
		Example: "  fairlead policy check\n  fairlead policy explain shop/web shop/db 5432\n  fairlead policy log --pod shop/db",
		Args:    want(0, 0), RunE: groupCommand,
	}
	c.AddCommand(a.policyCheck(), a.policyExplain(), a.policyLog(), a.policyStatus())
	return c
}

func (a *app) policyCheck() *cobra.Command {
	f := &policyFlags{}
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

// world reads the files or the cluster.
func (a *app) world(ctx context.Context, f *policyFlags) (*policy.World, error) {
	if len(f.files) > 0 {
		w, skipped, err := manifest.Load(os.Stdin, f.files...)
		if skipped > 0 {
			fmt.Fprintf(a.stderr, "%d objects of other kinds were skipped\n", skipped)
		}
		return w, err
	}
	client, err := a.connect(&f.kubernetesFlags)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	w := &policy.World{Namespaces: map[string]map[string]string{}}
	err = enforce.Objects(ctx, client.Config(), func(o runtime.Object) error {
		w.Add(o)
		return nil
	})
	return w, err
}
