package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// explainFlags are the flags of "policy explain".
type explainFlags struct {
	policyFlags
	kernel, kernelOnly bool
}

func (a *app) policyExplain(agent *agentFlags) *cobra.Command {
	f := &explainFlags{policyFlags: policyFlags{agent: agent}}
	c := &cobra.Command{
		Use: "explain SOURCE DESTINATION PORT", Short: "say whether a connection is allowed, and which rules decide",
		Long: "Explain evaluates the policies for a connection. SOURCE and DESTINATION are pods, NAMESPACE/NAME,\n" +
			"or addresses. PORT is a number, with the protocol if it is not TCP: 53/udp. With --kernel, on a\n" +
			"node and as root, it also evaluates the rules in the kernel, and fails if they decide otherwise\n" +
			"for a pod of this node. Exit code 4: the connection is dropped.",
		Example: "  fairlead policy explain shop/web shop/db 5432\n  fairlead policy explain 192.0.2.7 shop/web 80\n  fairlead policy explain -f policies.yaml -f pods.yaml shop/web kube-system/dns 53/udp\n" +
			"  fairlead policy explain --kernel shop/web shop/db 5432\n  fairlead policy explain --kernel-only 10.244.1.7 10.244.2.9 5432",
		Args: want(3, 3),
	}
	f.add(c)
	f.addNetwork(c)
	c.Flags().BoolVar(&f.kernel, "kernel", false, "Also answer from the rules in this node's kernel, and compare.")
	c.Flags().BoolVar(&f.kernelOnly, "kernel-only", false, "Answer only from the rules in this node's kernel, without a cluster. SOURCE and DESTINATION are addresses.")
	c.RunE = func(c *cobra.Command, args []string) error { return a.explainPolicy(c.Context(), f, args) }
	return c
}

func (a *app) explainPolicy(ctx context.Context, f *explainFlags, args []string) error {
	var w *policy.World
	var k *policy.Kernel
	packet, err := parsePort(args[2])
	if err != nil {
		return err
	}
	if f.kernelOnly && (f.kernel || len(f.files) > 0) {
		return &usageError{"--kernel-only excludes --kernel and -f", "Type: fairlead policy explain --help"}
	}
	if f.kernelOnly {
		if _, err := packets(nil, args[0], args[1], packet); err != nil {
			return err
		}
	} else if w, err = a.world(ctx, &f.policyFlags); err != nil {
		return err
	}
	if f.kernel || f.kernelOnly {
		err := f.inNetwork(func() (err error) { k, err = readKernel(ctx); return err })
		if err != nil {
			return err
		}
	}
	if w != nil {
		a.addNetworks(ctx, &f.policyFlags, w, k)
	}
	list, err := packets(w, args[0], args[1], packet)
	if err != nil {
		return err
	}
	var out []explained
	for _, p := range list {
		e, err := explainPacket(w, k, p)
		if err != nil {
			return err
		}
		e.Network = f.network
		out = append(out, e)
	}
	if err := a.printDataOr(out, explainText(out)); err != nil {
		return err
	}
	return explainError(out, f.kernelOnly)
}

// addNetworks adds the addresses that nodes have in the pod network, and the networks from which pods have their addresses:
// rules about pods also decide about addresses there that no known pod has. Files do not have them, so the networks are those
// in the rules of the kernel, if k is not nil.
func (a *app) addNetworks(ctx context.Context, f *policyFlags, w *policy.World, k *policy.Kernel) {
	if len(f.files) > 0 {
		if k != nil {
			w.PodNetworks = k.PodNetworks()
		}
		return
	}
	snap, err := a.networks(ctx, f)
	if err != nil {
		fmt.Fprintf(a.stderr, "the cluster's networks are not known, so addresses of unknown pods count as other addresses: %v\n", err)
		return
	}
	w.PodNetworks = enforce.PodsOf(enforce.NetworksOf(snap), f.network)
	if f.network == "" {
		w.AddNodeAddresses(enforce.PodAddressesOf(snap.Blocks))
	}
}

// explainError returns the error with which the command ends.
func explainError(out []explained, kernelOnly bool) error {
	dropped, local, differs := false, false, false
	for _, e := range out {
		if e.Explanation != nil {
			dropped = dropped || !e.Allowed
		}
		if e.Kernel != nil {
			dropped, local, differs = dropped || !e.Kernel.Allowed, local || e.Kernel.Local, differs || len(e.Kernel.Differs) > 0
		}
	}
	switch {
	case differs:
		return errors.New("the rules in this node's kernel differ from the policies\nType the command again in a few seconds. If they still differ, see the agent's log")
	case kernelOnly && !local:
		return errors.New("neither SOURCE nor DESTINATION is a pod of this node, so its rules do not decide\nRun the command on the node of one of them")
	case dropped:
		return silentError{exitWrong}
	}
	return nil
}

// readKernel reads the rules of network policy from this node's kernel.
func readKernel(ctx context.Context) (*policy.Kernel, error) {
	p, err := nftable.Open()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	table, err := p.Read(ctx, policy.TableFamily, policy.TableName)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errNoPolicy
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nThe command needs root", err)
	}
	k := &policy.Kernel{Table: table}
	list, err := net.InterfaceAddrs()
	for _, x := range list {
		if n, ok := x.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				k.Own = append(k.Own, a.Unmap())
			}
		}
	}
	return k, err
}

// errNoPolicy reports that this host has no rules. It is a constant; nothing assigns it.
var errNoPolicy = errors.New("network policy is not in force on this host: there is no nftables table " + policy.TableFamily + " " + policy.TableName + "\nRun the command on a node whose agent has policy.enabled")

// explained is an explanation with the addresses that it is about.
type explained struct {
	Source      netip.Addr `json:"source"`
	Destination netip.Addr `json:"destination"`
	Network     string     `json:"network,omitempty"` // isolated
	*policy.Explanation
	Kernel *policy.KernelExplanation `json:"kernel,omitempty"`
}

// explainPacket explains by the policies of a world, and by the rules of a kernel. Either may be nil.
func explainPacket(w *policy.World, k *policy.Kernel, p policy.Packet) (explained, error) {
	out := explained{Source: p.Src, Destination: p.Dst}
	if w != nil {
		e, err := w.Explain(p)
		if err != nil {
			return out, err
		}
		out.Explanation = &e
	}
	if k != nil {
		e, err := k.Explain(w, p)
		if err != nil {
			return out, err
		}
		out.Kernel = &e
	}
	return out, nil
}

func explainText(list []explained) (out string) {
	for _, e := range list {
		ends := fmt.Sprintf("%s -> %s", e.Source, e.Destination)
		if e.Network != "" {
			ends += ", network " + e.Network
		}
		if e.Explanation != nil {
			out += ends + ": " + decisionText(*e.Explanation)
		}
		if e.Kernel == nil {
			continue
		}
		out += ends + ", by this node's kernel: " + decisionText(e.Kernel.Explanation)
		for _, d := range e.Kernel.Differs {
			out += "  DIFFERENT " + d + "\n"
		}
		if e.Explanation != nil && len(e.Kernel.Differs) == 0 {
			out += "  the kernel agrees with the policies\n"
		}
	}
	return out
}

func decisionText(e policy.Explanation) string {
	word := "allowed"
	if !e.Allowed {
		word = "dropped"
	}
	return fmt.Sprintf("%s\n  egress of the source:       %s\n  ingress of the destination: %s\n", word, e.Egress, e.Ingress)
}

// parsePort parses a port with an optional protocol, such as "53/udp". The addresses of the packet are not set.
func parsePort(port string) (policy.Packet, error) {
	number, protocol, hasProtocol := strings.Cut(port, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if protocol = strings.ToUpper(protocol); !hasProtocol {
		protocol = "TCP"
	}
	if err != nil || n == 0 || protocol != "TCP" && protocol != "UDP" && protocol != "SCTP" {
		return policy.Packet{}, &usageError{fmt.Sprintf("%q is not a port: want a number from 1 to 65535, or one with a protocol, such as 53/udp", port),
			"Type: fairlead policy explain --help"}
	}
	return policy.Packet{Protocol: protocol, Port: uint16(n)}, nil
}

// packets returns the first packet of the connection, for each address family that both ends have.
func packets(w *policy.World, src, dst string, p policy.Packet) (out []policy.Packet, err error) {
	from, err := endOf(w, src)
	if err != nil {
		return nil, err
	}
	to, err := endOf(w, dst)
	if err != nil {
		return nil, err
	}
	for _, a := range from {
		for _, b := range to {
			if a.Is4() == b.Is4() {
				p.Src, p.Dst = a, b
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s and %s have no address family in common", src, dst)
	}
	return out, nil
}

// endOf returns the addresses of one end of a connection. Without a world, the end must be an address.
func endOf(w *policy.World, text string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	if w == nil {
		return nil, &usageError{fmt.Sprintf("%q is not an address, and the kernel knows no names of pods", text), "Type: fairlead policy explain --help"}
	}
	for _, e := range w.Endpoints {
		if policy.EndpointKey(e.Namespace, e.Name) != text {
			continue
		}
		if len(e.Addresses) == 0 {
			return nil, fmt.Errorf("the pod %s has no address yet", text)
		}
		// Programs that connect to a pod by its name do not use link-local addresses.
		if list := slices.DeleteFunc(slices.Clone(e.Addresses), netip.Addr.IsLinkLocalUnicast); len(list) > 0 {
			return list, nil
		}
		return e.Addresses, nil
	}
	return nil, fmt.Errorf("there is no pod %s with an address of its own: want NAMESPACE/NAME of a running pod without hostNetwork, or an address", text)
}
