package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/delegate"
	"github.com/fairlead/fairlead/skel"
)

func (a *app) planCommand() *cobra.Command {
	var ifName string
	c := &cobra.Command{
		Use: "plan NETWORK|FILE NETNS", Short: "what add would make; changes nothing", GroupID: "look",
		Long: "Plan prints, for every plugin of the network, the kernel objects that add would\n" +
			"make, one a line, in the words of ip, bridge, nft and sysctl. It changes nothing: no\n" +
			"address is reserved, so another add may get the one shown. A plugin that is not of\n" +
			"this project is named and skipped.",
		Example: "  fairlead plan my-network web\n  fairlead plan ./10-my-network.conflist web",
		Args:    want(2, 2), ValidArgsFunction: a.completeAttachment,
		RunE: func(c *cobra.Command, args []string) error {
			netns, err := netnsPath(args[1])
			if err != nil {
				return err
			}
			s, err := a.planSession(args[0], netns, ifName)
			if err != nil {
				return err
			}
			p, err := s.plan(c.Context())
			if err != nil {
				return err
			}
			return a.printPlan(p)
		},
	}
	c.Flags().StringVarP(&ifName, "ifname", "i", "", "the interface's name in the container (default CNI_IFNAME, or eth0)")
	return c
}

// planSession is a session on a network, or on a file that is not in place yet.
func (a *app) planSession(network, netns, ifName string) (*session, error) {
	fi, err := os.Stat(network)
	if err != nil || !fi.Mode().IsRegular() {
		return a.session(network, netns, ifName)
	}
	list, err := loadFile(network)
	if err != nil {
		return nil, err
	}
	return a.sessionOf(list, netns, ifName)
}

// loadFile reads a list, or makes one of a single plugin's configuration.
func loadFile(path string) (*libcni.NetworkConfigList, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if isList(path, data) {
		return libcni.ConfListFromFile(path)
	}
	conf, err := libcni.ConfFromFile(path)
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf)
}

// plan is what an add would make.
type plan struct {
	Network    string      `json:"network"`
	CNIVersion string      `json:"cniVersion"`
	Container  string      `json:"container"`
	IfName     string      `json:"ifname"`
	Netns      string      `json:"netns"`
	Plugins    []planned   `json:"plugins"`
	Addresses  []string    `json:"addresses"`
	result     *cni.Result // after the last plugin
	objects    kernel.Objects
}

// planned is what one plugin would make.
type planned struct {
	Type      string   `json:"type"`
	Host      []object `json:"host"`
	Container []object `json:"container"`
	Notes     []string `json:"notes,omitempty"`
	Skipped   bool     `json:"skipped,omitempty"`
}

// object is a kernel object in one line.
type object struct {
	Line   string `json:"line"`
	Shared bool   `json:"shared,omitempty"` // stays after del
}

func (s *session) plan(ctx context.Context) (*plan, error) {
	if err := s.needNetns(); err != nil {
		return nil, err
	}
	p := &plan{
		Network: s.list.Name, CNIVersion: s.list.CNIVersion, Container: s.rt.ContainerID,
		IfName: s.rt.IfName, Netns: s.rt.NetNS, Addresses: []string{},
	}
	members, err := parts(s.list)
	if err != nil {
		return nil, err
	}
	for _, conf := range members {
		member, err := s.planMember(ctx, p, conf)
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", conf.Network.Type, err)
		}
		p.Plugins = append(p.Plugins, member)
	}
	if p.result != nil {
		for _, ip := range p.result.IPs {
			p.Addresses = append(p.Addresses, ip.Address.String())
		}
	}
	return p, nil
}

// planMember plans one plugin after those before it.
func (s *session) planMember(ctx context.Context, p *plan, conf *libcni.NetworkConfig) (planned, error) {
	m := planned{Type: conf.Network.Type, Host: []object{}, Container: []object{}}
	skip := func(format string, args ...any) (planned, error) {
		m.Skipped, m.Notes = true, append(m.Notes, fmt.Sprintf(format, args...))
		return m, nil
	}
	path, err := invoke.FindInPath(m.Type, s.cni.Path)
	if err != nil {
		m.Notes = append(m.Notes, fmt.Sprintf("not found on CNI_PATH (%s): add would fail", join(s.cni.Path)))
	}
	ours := declared(m.Type)
	isolated := m.Type == delegate.NetworkType
	if isolated {
		ours = declared("ptp") // which it has make all
	}
	switch {
	case err != nil && ours == nil:
		return skip("no plugin of this project")
	case ours == nil || err == nil && !isOurs(path):
		return skip("%s is not of this project: it cannot say what it would make", path)
	case ours.Chained && p.result == nil:
		return skip("it works on the result of the plugins before it, which is not known")
	}
	req, err := s.list.Request(conf, p.result, s.rt)
	if err != nil {
		return m, err
	}
	foresee := ours.Plan
	if isolated {
		foresee = m.isolated(*ours)
	}
	got, err := foresee(ctx, s.cmdArgs(req), plugin.Env{IPAM: plugins.IPAM()}, p.objects)
	if err != nil {
		return m, err
	}
	m.take(got, p.objects)
	p.result, p.objects = got.Result, append(p.objects, got.Objects...)
	return m, nil
}

// isolated plans what fairlead-net has ptp make, in its network's namespace.
func (m *planned) isolated(ptp plugin.Plugin) func(context.Context, *skel.CmdArgs, plugin.Env, kernel.Objects) (*plugin.Planned, error) {
	return func(ctx context.Context, args *skel.CmdArgs, env plugin.Env, before kernel.Objects) (got *plugin.Planned, err error) {
		path, err := delegate.InNetwork(ctx, args, func(ctx context.Context, args *skel.CmdArgs) error {
			got, err = ptp.Plan(ctx, args, env, before)
			return err
		})
		if err == nil {
			m.Notes = append(m.Notes, "the host's side is in "+path+", which the agent makes before the first container")
		}
		return got, err
	}
}

func (s *session) cmdArgs(req []byte) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: s.rt.ContainerID, Netns: s.rt.NetNS, IfName: s.rt.IfName, Args: s.getenv("CNI_ARGS"),
		Path: strings.Join(s.cni.Path, string(filepath.ListSeparator)), StdinData: req,
	}
}

// take notes what a plugin plans. What is shared is listed once a plan.
func (m *planned) take(got *plugin.Planned, before kernel.Objects) {
	for i, o := range got.Objects {
		if o.Shared() && stated(before, o) || stated(got.Objects[:i], o) {
			continue
		}
		line := object{o.String(), o.Shared()}
		if o.Side() == kernel.Container {
			m.Container = append(m.Container, line)
		} else {
			m.Host = append(m.Host, line)
		}
	}
	switch {
	case got.Why != "":
		m.Notes = append(m.Notes, "ipam "+got.Unasked+" cannot tell its addresses, which are missing here: "+got.Why)
	case got.Unasked != "":
		m.Notes = append(m.Notes, "ipam "+got.Unasked+" gives addresses only when asked in earnest: they are missing here")
	}
	if len(got.Objects) == 0 {
		m.Notes = append(m.Notes, "nothing to make")
	}
}

func stated(list kernel.Objects, o kernel.Object) bool {
	return slices.ContainsFunc(list, func(b kernel.Object) bool { return b.Side() == o.Side() && b.String() == o.String() })
}

func (a *app) printPlan(p *plan) error {
	if a.json {
		return a.printJSON(p)
	}
	addresses := "no address"
	if len(p.Addresses) > 0 {
		addresses = join(p.Addresses)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (cniVersion %s): %s in %s would get %s.\n", p.Network, p.CNIVersion, p.IfName, p.Netns, addresses)
	fmt.Fprintln(&b, "Nothing is changed. What is marked * is shared: it stays after del.")
	for _, m := range p.Plugins {
		fmt.Fprintf(&b, "\n%s\n", m.Type)
		for _, n := range m.Notes {
			fmt.Fprintf(&b, "  # %s\n", n)
		}
		section(&b, "host", m.Host)
		section(&b, "container", m.Container)
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return err
}

func section(b *strings.Builder, side string, lines []object) {
	if len(lines) > 0 {
		fmt.Fprintf(b, "  %s\n", side)
	}
	for _, l := range lines {
		mark := " "
		if l.Shared {
			mark = "*"
		}
		fmt.Fprintf(b, "  %s %s\n", mark, l.Line)
	}
}
