// Package plugins lists every plugin of Fairlead.
package plugins

import (
	"cmp"
	"os"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/plugins/delegate"
	addr "github.com/fairlead/fairlead/plugins/ipam"
	"github.com/fairlead/fairlead/plugins/link"
	"github.com/fairlead/fairlead/skel"
)

// IPAM returns the address plugins.
func IPAM() []plugin.IPAM {
	return []plugin.IPAM{
		{Plugin: addr.DHCP(), NeedsLinks: true, Validate: addr.ValidateDHCP},
		{Plugin: addr.Fairlead(), Validate: addr.ValidateFairlead, Plan: addr.PlanFairlead},
		{Plugin: addr.HostLocal(), Validate: addr.ValidateHostLocal, Plan: addr.PlanHostLocal},
		{Plugin: addr.Whereabouts(), Validate: addr.ValidateWhereabouts, Plan: addr.PlanWhereabouts},
		{Plugin: addr.Static(), Validate: addr.ValidateStatic, Plan: addr.Static().Funcs.Add},
	}
}

// Declarative returns the plugins that declare the objects that should exist.
func Declarative() []plugin.Plugin {
	return []plugin.Plugin{
		link.Bridge(),
		link.Dummy(),
		link.HostDevice(),
		link.IPvlan(),
		link.Loopback(),
		link.Macvlan(),
		link.PTP(),
		link.Tap(),
		link.VLAN(),
		chain.Bandwidth(),
		chain.Firewall(),
		chain.Portmap(),
		chain.SBR(),
		chain.Tuning(),
		chain.VRF(),
	}
}

// All returns all plugins as the protocol sees them.
func All() []skel.Plugin { return In(plugin.Env{}).Plugins }

// In returns an Exec that runs the plugins of this package, and more that the program brings, in process. libcni can
// use it, too.
func In(env plugin.Env, more ...plugin.Plugin) *plugin.Exec {
	if env.IPAM == nil {
		env.IPAM = IPAM()
	}
	x := &plugin.Exec{RawExec: invoke.RawExec{Stderr: os.Stderr}, Env: env}
	for _, i := range env.IPAM {
		x.Plugins = append(x.Plugins, i.Plugin)
	}
	x.Plugins = append(x.Plugins, chain.Policy())
	for _, p := range Declarative() {
		x.Plugins = append(x.Plugins, p.Skel(env))
	}
	x.Plugins = append(x.Plugins, delegate.Flannel(x), delegate.Network(x), delegate.MiniCNI(x), delegate.Chain(x), delegate.Pod(x))
	for i := range x.Plugins {
		x.Plugins[i].Version = cmp.Or(x.Plugins[i].Version, cni.Release())
	}
	for _, p := range more {
		x.Plugins = append(x.Plugins, p.Skel(env))
	}
	return x
}
