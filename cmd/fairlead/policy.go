package main

import (
	"context"
	"fmt"
	"net/netip"
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
	c.AddCommand(a.policyCheck(), a.policyExplain(), a.policyLog())
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

func (a *app) policyExplain() *cobra.Command {
	f := &policyFlags{}
	c := &cobra.Command{
		Use: "explain SOURCE DESTINATION PORT", Short: "say whether a connection is allowed, and which rules decide",
		Long: "Explain evaluates the policies for a connection. SOURCE and DESTINATION are pods, NAMESPACE/NAME,\n" +
			"or addresses. PORT is a number, with the protocol if it is not TCP: 53/udp. Exit code 4: the\n" +
			"connection is dropped.",
		Example: "  fairlead policy explain shop/web shop/db 5432\n  fairlead policy explain 192.0.2.7 shop/web 80\n  fairlead policy explain -f policies.yaml -f pods.yaml shop/web kube-system/dns 53/udp",
		Args:    want(3, 3),
	}
	f.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		w, err := a.world(c.Context(), f)
		if err != nil {
			return err
		}
		list, err := packets(w, args[0], args[1], args[2])
		if err != nil {
			return err
		}
		dropped := false
		var out []explained
		for _, p := range list {
			e, err := w.Explain(p)
			if err != nil {
				return err
			}
			dropped = dropped || !e.Allowed
			out = append(out, explained{p.Src, p.Dst, e})
		}
		if err := a.printDataOr(out, explainText(out)); err != nil {
			return err
		}
		if dropped {
			return silentError{exitWrong}
		}
		return nil
	}
	return c
}

// explained is an explanation with the addresses that it is about.
type explained struct {
	Source      netip.Addr `json:"source"`
	Destination netip.Addr `json:"destination"`
	policy.Explanation
}

func explainText(list []explained) (out string) {
	for _, e := range list {
		word := "allowed"
		if !e.Allowed {
			word = "dropped"
		}
		out += fmt.Sprintf("%s -> %s: %s\n  egress of the source:       %s\n  ingress of the destination: %s\n", e.Source, e.Destination, word, e.Egress, e.Ingress)
	}
	return out
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

// packets returns the first packet of the connection, for each address family that both ends have.
func packets(w *policy.World, src, dst, port string) (out []policy.Packet, err error) {
	from, err := endOf(w, src)
	if err != nil {
		return nil, err
	}
	to, err := endOf(w, dst)
	if err != nil {
		return nil, err
	}
	number, protocol, hasProtocol := strings.Cut(port, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if protocol = strings.ToUpper(protocol); !hasProtocol {
		protocol = "TCP"
	}
	if err != nil || n == 0 || protocol != "TCP" && protocol != "UDP" && protocol != "SCTP" {
		return nil, fmt.Errorf("%q is not a port: want a number from 1 to 65535, or one with a protocol, such as 53/udp", port)
	}
	for _, a := range from {
		for _, b := range to {
			if a.Is4() == b.Is4() {
				out = append(out, policy.Packet{Src: a, Dst: b, Protocol: protocol, Port: uint16(n)})
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s and %s have no address family in common", src, dst)
	}
	return out, nil
}

// endOf returns the addresses of one end of a connection.
func endOf(w *policy.World, text string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	for _, e := range w.Endpoints {
		if policy.EndpointKey(e.Namespace, e.Name) != text {
			continue
		}
		if len(e.Addresses) == 0 {
			return nil, fmt.Errorf("the pod %s has no address yet", text)
		}
		return e.Addresses, nil
	}
	return nil, fmt.Errorf("there is no pod %s with an address of its own: want NAMESPACE/NAME of a running pod without hostNetwork, or an address", text)
}
