// Package plan computes the kernel objects that an ADD would create, without changing anything.
package plan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/plugins/delegate"
	"github.com/fairlead/fairlead/skel"
)

// Request is the ADD to plan.
type Request struct {
	List    *libcni.NetworkConfigList
	Runtime *libcni.RuntimeConf
	Path    []string // directories of plugins
	Args    string   // CNI_ARGS

	// HostNetns reports that ADD would accept the host's own network namespace (CNI_NETNS_OVERRIDE).
	HostNetns bool
}

// Plan lists the objects that an ADD would create.
type Plan struct {
	Network    string   `json:"network"`
	CNIVersion string   `json:"cniVersion"`
	Container  string   `json:"container"`
	IfName     string   `json:"ifname"`
	Netns      string   `json:"netns"`
	Plugins    []Plugin `json:"plugins"`
	Addresses  []string `json:"addresses"`
	// AddressesUnknown reports that ADD may assign addresses that cannot be predicted.
	AddressesUnknown bool `json:"addressesUnknown,omitempty"`
	// Attached reports that the attachment exists, so that ADD would fail. The caller of New sets it.
	Attached bool `json:"attached,omitempty"`

	result  *cni.Result // after the last plugin
	objects kernel.Objects
}

// Plugin lists the objects that one plugin would create.
type Plugin struct {
	Type      string   `json:"type"`
	Host      []Object `json:"host"`
	Container []Object `json:"container"`
	Notes     []string `json:"notes,omitempty"`
	Skipped   bool     `json:"skipped,omitempty"`
}

// Object is a kernel object, written as a line of ip, bridge, nft or sysctl.
type Object struct {
	Line   string `json:"line"`
	Shared bool   `json:"shared,omitempty"` // DEL leaves it in place
}

// New plans an ADD.
func New(ctx context.Context, r Request) (*Plan, error) {
	p := &Plan{
		Network: r.List.Name, CNIVersion: r.List.CNIVersion, Container: r.Runtime.ContainerID,
		IfName: r.Runtime.IfName, Netns: r.Runtime.NetNS, Addresses: []string{},
	}
	if err := r.accepted(); err != nil {
		return nil, err
	}
	members, err := netconf.Members(r.List)
	if err != nil {
		return nil, err
	}
	for _, conf := range members {
		member, err := r.plugin(ctx, p, conf)
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", conf.Network.Type, r.List.Locate(conf, err))
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

// accepted rejects a version of the configuration and a namespace that ADD would reject.
func (r *Request) accepted() error {
	if err := r.List.CheckVersion(); err != nil {
		return err
	}
	container, err := netns.Open(r.Runtime.NetNS)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is not a network namespace: want a path like /run/netns/NAME or /proc/PID/ns/net", r.Runtime.NetNS)
	}
	if err != nil {
		return err
	}
	defer container.Close()
	host, err := netns.Current()
	if err != nil {
		return err
	}
	defer host.Close()
	if container.SameAs(host) && !r.HostNetns {
		return fmt.Errorf("%s is the network namespace of the host: want the container's", r.Runtime.NetNS)
	}
	return nil
}

// plugin plans one plugin with the results of the plugins before it.
func (r *Request) plugin(ctx context.Context, p *Plan, conf *libcni.NetworkConfig) (Plugin, error) {
	m := Plugin{Type: conf.Network.Type, Host: []Object{}, Container: []Object{}}
	skip := func(format string, args ...any) (Plugin, error) {
		m.Skipped, m.Notes = true, append(m.Notes, fmt.Sprintf(format, args...))
		p.AddressesUnknown = p.AddressesUnknown || p.result == nil
		return m, nil
	}
	path, err := invoke.FindInPath(m.Type, r.Path)
	if err != nil {
		m.Notes = append(m.Notes, fmt.Sprintf("not found on CNI_PATH (%s): add would fail", strings.Join(r.Path, ", ")))
	}
	ours := builtin.Find(m.Type)
	isolated := m.Type == delegate.NetworkType
	if isolated {
		ours = builtin.Find("ptp") // fairlead-net delegates to it
	}
	switch {
	case err != nil && ours == nil:
		return skip("not a plugin of Fairlead")
	case ours == nil && m.Type == chain.PolicyType:
		m.Notes = append(m.Notes, "waits for network policy; creates no objects")
		return m, nil
	case ours == nil && builtin.IsOurs(path):
		return skip("%s decides at ADD what to create, so plan cannot predict its objects", m.Type)
	case ours == nil || err == nil && !builtin.IsOurs(path):
		return skip("%s is not a plugin of Fairlead, so it cannot be planned", path)
	case ours.Chained && p.result == nil && len(p.Plugins) > 0: // the first of a list fails as in ADD
		return skip("it changes the result of the plugins before it, which is unknown")
	}
	req, err := r.List.Request(conf, p.result, r.Runtime)
	if err != nil {
		return m, err
	}
	compute := ours.Plan
	if isolated {
		compute = m.isolated(*ours)
	}
	got, err := compute(ctx, r.cmdArgs(req), plugin.Env{IPAM: plugins.IPAM()}, p.objects)
	if err != nil {
		return m, err
	}
	m.add(got, p.objects)
	p.AddressesUnknown = p.AddressesUnknown || got.UnknownIPAM != ""
	p.result, p.objects = got.Result, append(p.objects, got.Objects...)
	return m, nil
}

// isolated plans ptp in the network namespace of an isolated network, as fairlead-net runs it.
func (m *Plugin) isolated(ptp plugin.Plugin) func(context.Context, *skel.CmdArgs, plugin.Env, kernel.Objects) (*plugin.Planned, error) {
	return func(ctx context.Context, args *skel.CmdArgs, env plugin.Env, before kernel.Objects) (got *plugin.Planned, err error) {
		path, err := delegate.InNetwork(ctx, args, func(ctx context.Context, args *skel.CmdArgs) error {
			got, err = ptp.Plan(ctx, args, env, before)
			return err
		})
		if err == nil {
			m.Notes = append(m.Notes, "the host's side is in "+path+", which the agent creates before the first container")
		}
		return got, err
	}
}

func (r *Request) cmdArgs(req []byte) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: r.Runtime.ContainerID, Netns: r.Runtime.NetNS, IfName: r.Runtime.IfName, Args: r.Args,
		Path: strings.Join(r.Path, string(filepath.ListSeparator)), StdinData: req,
	}
}

// add adds the objects of a plugin. A plan lists a shared object once.
func (m *Plugin) add(got *plugin.Planned, before kernel.Objects) {
	for i, o := range got.Objects {
		if o.Shared() && contains(before, o) || contains(got.Objects[:i], o) {
			continue
		}
		line := Object{o.String(), o.Shared()}
		if o.Side() == kernel.Container {
			m.Container = append(m.Container, line)
		} else {
			m.Host = append(m.Host, line)
		}
	}
	switch {
	case got.Why != "":
		m.Notes = append(m.Notes, "the addresses of ipam "+got.UnknownIPAM+" are unknown: "+got.Why)
	case got.UnknownIPAM != "":
		m.Notes = append(m.Notes, "the addresses of ipam "+got.UnknownIPAM+" are unknown before an ADD")
	}
	if len(got.Objects) == 0 {
		m.Notes = append(m.Notes, "creates no objects")
	}
}

func contains(list kernel.Objects, o kernel.Object) bool {
	return slices.ContainsFunc(list, func(b kernel.Object) bool { return b.Side() == o.Side() && b.String() == o.String() })
}
