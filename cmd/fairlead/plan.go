package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/plan"
)

const planLong = `Plan prints, for each plugin of the network, the kernel objects that add would create, one
a line, in the syntax of ip, bridge, nft and sysctl. It changes nothing: it reserves no address
and writes no file. Several attachments share an object with a *: del leaves it in place.
NETWORK may be a file. A plugin that is not part of Fairlead is listed and skipped.

An address of fairlead-ipam is the next one of the blocks on this host's disk. For an address that
the cluster assigns (whereabouts, or "assign: cluster"), plan asks the agent, which
reserves nothing. If no address can be predicted, plan prints why. For fairlead-net it prints
the objects of ptp in the network's namespace.`

func (a *app) planCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "plan NETWORK NETNS", Short: "show what add would create", GroupID: "look", Long: planLong,
		Example: "  fairlead plan my-network web\n  fairlead plan /etc/cni/net.d/10-my-network.conflist web",
		Args:    want(2, 2), ValidArgsFunction: a.completeAttachment,
	}
	ifName := ifNameFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		netns, err := netnspath.Resolve(args[1])
		if err != nil {
			return err
		}
		s, err := a.session(args[0], netns, *ifName)
		if err != nil {
			return err
		}
		if err := s.needNetns(); err != nil {
			return err
		}
		p, err := plan.New(c.Context(), plan.Request{List: s.list, Runtime: s.rt, Path: s.cni.Path, Args: s.getenv("CNI_ARGS")})
		if err != nil {
			return err
		}
		return a.printDataOr(p, planText(p))
	}
	return c
}

func planText(p *plan.Plan) string {
	addresses := "no address"
	if len(p.Addresses) > 0 {
		addresses = join(p.Addresses)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (cniVersion %s): %s in %s would get %s.\n", p.Network, p.CNIVersion, p.IfName, p.Netns, addresses)
	fmt.Fprintln(&b, "Nothing is changed. Attachments share the objects with a *: del leaves them in place.")
	for _, m := range p.Plugins {
		fmt.Fprintf(&b, "\n%s\n", m.Type)
		for _, n := range m.Notes {
			fmt.Fprintf(&b, "  # %s\n", n)
		}
		planSection(&b, "host", m.Host)
		planSection(&b, "container", m.Container)
	}
	return b.String()
}

func planSection(b *strings.Builder, side string, objects []plan.Object) {
	if len(objects) > 0 {
		fmt.Fprintf(b, "  %s\n", side)
	}
	for _, o := range objects {
		star := " "
		if o.Shared {
			star = "*"
		}
		fmt.Fprintf(b, "  %s %s\n", star, o.Line)
	}
}
