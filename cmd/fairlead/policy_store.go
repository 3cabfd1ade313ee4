package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/policy/manifest"
	"github.com/fairlead/fairlead/agent/policy/stored"
	"github.com/fairlead/fairlead/agent/store"
)

// withPolicyStore sets the RunE of a command that changes policies in the agents' store, which is not Kubernetes.
func (a *app) withPolicyStore(f *agentFlags, use storeUse, c *cobra.Command, do func(ctx context.Context, s store.Store, args []string) error) *cobra.Command {
	a.withStore(f, use, c, do)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		conf, err := a.clusterConfig(f)
		switch {
		case err != nil:
			return err
		case conf.Store.Kubernetes.Kubeconfig != "":
			return errors.New("the store is the Kubernetes API: change its policies with kubectl")
		case conf.Policy.Directory != "":
			return fmt.Errorf("the policies of this host are the files in %s, not in a store\nChange the files; to list their policies, type: fairlead policy check", conf.Policy.Directory)
		}
		return run(c, args)
	}
	return c
}

func (a *app) policyApply(f *agentFlags) *cobra.Command {
	var files []string
	dry := false
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "create or change policies in the agents' store", DisableFlagsInUseLine: true,
		Long: "Apply writes policies, and namespaces with labels, to the agents' store: for clusters without\n" +
			"Kubernetes. The file has them in the short form of docs/policy-files.md, or as Kubernetes objects.\n" +
			"The agents enforce them on all hosts. If a file is invalid, apply writes nothing.",
		Example: "  fairlead policy apply -f db.yaml --dry-run\n  fairlead policy apply -f db.yaml",
		Args:    want(0, 0),
	}
	c.Flags().StringArrayVarP(&files, "filename", "f", nil, "`FILE` with policies and namespaces in YAML or JSON. - is standard input. May be repeated.")
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json") // the flag exists
	dryRunFlag(c, &dry)
	return a.withPolicyStore(f, createsStore, c, func(ctx context.Context, s store.Store, _ []string) error {
		if len(files) == 0 {
			return &usageError{"--filename is missing: it names the file with the policies", "Type: fairlead policy apply --help"}
		}
		list, err := a.readPolicies(files)
		if err != nil {
			return err
		}
		for _, d := range list {
			did, err := admin.ApplyPolicy(ctx, s, d, dry)
			if err != nil {
				return err
			}
			if err := a.printApplied(did, d.Name(), dry); err != nil {
				return err
			}
		}
		return nil
	})
}

// readPolicies reads the policies and namespaces of files. An invalid part is an error.
func (a *app) readPolicies(files []string) (out []stored.Document, err error) {
	seen := map[string]bool{}
	for _, file := range files {
		raw, err := a.fileOrInput(file)
		if err != nil {
			return nil, err
		}
		more, err := a.parsePolicies(file, raw, seen)
		if err != nil {
			return nil, invalidError{fmt.Errorf("%s: %w", file, err)}
		}
		out = append(out, more...)
	}
	return out, nil
}

// parsePolicies reads the content of a file. seen has the keys of the policies of all files.
func (a *app) parsePolicies(file string, raw []byte, seen map[string]bool) (out []stored.Document, err error) {
	w, skipped, err := manifest.Parse(raw)
	if err != nil {
		return nil, err
	}
	for kind, n := range map[string]int{"Pod": len(w.Endpoints), "Node": len(w.Nodes)} {
		if n > 0 {
			skipped[kind] = n
		}
	}
	if len(skipped) > 0 {
		fmt.Fprintf(a.stderr, "%s: skipped objects that are no policies: %s\n", file, skipped)
	}
	for _, x := range w.Selections() {
		if len(x.Problems) > 0 {
			return nil, fmt.Errorf("%s: %s", x.Policy, x.Problems[0])
		}
	}
	for _, d := range stored.Documents(w) {
		_, err := d.Encode()
		if err == nil && d.Namespace == nil && seen[d.Key()] {
			err = fmt.Errorf("%s occurs twice", d.Name())
		}
		if err != nil {
			return nil, err
		}
		seen[d.Key()] = true
		out = append(out, d)
	}
	if len(out)+len(skipped) == 0 {
		return nil, errors.New("the file has no policies")
	}
	return out, nil
}

func (a *app) policyList(f *agentFlags) *cobra.Command {
	return a.withPolicyStore(f, readsStore, &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "list the policies in the agents' store",
		Long: "List prints the names of the policies and namespaces in the store of the agents. \"fairlead policy\n" +
			"check\" also says what they select.",
		Example: "  fairlead policy list", Args: want(0, 0),
	}, func(ctx context.Context, s store.Store, _ []string) error {
		list, err := admin.Policies(ctx, s)
		if err != nil {
			return err
		}
		if a.structured() {
			return a.printData(list)
		}
		if len(list) == 0 {
			_, err := fmt.Fprintln(a.stdout, "No policies.\nCreate one: fairlead policy apply -f FILE. See docs/policy-files.md")
			return err
		}
		for _, p := range list {
			if p.Invalid != "" {
				p.Name += " is invalid: " + p.Invalid
			}
			fmt.Fprintln(a.stdout, p.Name)
		}
		return nil
	})
}

func (a *app) policyDelete(f *agentFlags) *cobra.Command {
	dry := false
	c := &cobra.Command{
		Use: "delete NAME...", Short: "delete policies from the agents' store",
		Long: "Delete deletes policies or namespaces from the store of the agents. NAME is one that \"fairlead policy\n" +
			"list\" prints. The connections that only this policy forbids are then allowed.",
		Example: "  fairlead policy delete networkpolicy/default/db", Args: want(1, -1), ValidArgsFunction: a.completePolicies(f),
	}
	dryRunFlag(c, &dry)
	return a.withPolicyStore(f, readsStore, c, func(ctx context.Context, s store.Store, args []string) error {
		for _, name := range args {
			if err := admin.DeletePolicy(ctx, s, name, dry); err != nil {
				return err
			}
			if err := a.printChanged(would(dry, "delete", "deleted"), name); err != nil {
				return err
			}
		}
		return nil
	})
}

// completePolicies completes names of policies in the store, if it answers soon.
func (a *app) completePolicies(f *agentFlags) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
		if s, err := a.openStore(f, readsStore); err == nil {
			defer s.Close()
			ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
			defer cancel()
			list, _ := admin.Policies(ctx, s) // without an answer, there is nothing to complete
			for _, p := range list {
				names = append(names, p.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
