package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/internal/netnspath"
	"github.com/fairlead/fairlead/plan"
	"github.com/fairlead/fairlead/skel"
	"github.com/fairlead/fairlead/validate"
)

const planLong = `Plan prints, for each plugin of the network, the kernel objects that add would create, one
a line, in the syntax of ip, bridge, nft and sysctl. It changes nothing: it reserves no address
and writes no file. Several attachments share an object with a *: del leaves it in place.
NETWORK may be a file. A plugin that is not part of Fairlead is listed and skipped, and so is one
that decides at ADD what to create, such as flannel.

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
		p, err := plan.New(c.Context(), plan.Request{
			List: s.list, Runtime: s.rt, Path: s.cni.Path, Args: s.getenv("CNI_ARGS"), HostNetns: skel.AllowsOwnNetns(s.getenv("CNI_NETNS_OVERRIDE")),
		})
		if _, invalid := errors.AsType[*cni.ConfigError](err); invalid {
			return cmp.Or(a.problems(args[0]), err)
		}
		if err != nil {
			return err
		}
		p.Attached = s.isAttached()
		text := planText(p)
		if p.Attached {
			text += fmt.Sprintf("\nadd would fail: the container is attached already. To detach it: %s\n", s.command("del"))
		}
		return a.printDataOr(p, text)
	}
	return c
}

// problems returns what validate reports about the file of a network: plan sees each plugin's configuration without its file.
func (a *app) problems(network string) error {
	files := []string{network}
	if !netconf.IsFile(network) {
		files, _ = netconf.Files([]string{a.confDir()}) // session has read the directory
	}
	for _, file := range files {
		if list, err := netconf.LoadFile(file); err == nil && (list.Name == network || file == network) {
			return validate.Problems(file, a.pluginPath())
		}
	}
	return nil
}

func planText(p *plan.Plan) string {
	addresses := "no address"
	switch {
	case len(p.Addresses) > 0:
		addresses = join(p.Addresses)
	case p.AddressesUnknown:
		addresses = "an address that is not known before an ADD"
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
