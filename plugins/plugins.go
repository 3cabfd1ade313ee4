// Package plugins is the list of everything that Fairlead can be called as.
package plugins

import (
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/chain"
	addr "github.com/fairlead/fairlead/plugins/ipam"
	"github.com/fairlead/fairlead/plugins/link"
	"github.com/fairlead/fairlead/skel"
)

// IPAM are the address plugins.
func IPAM() []plugin.IPAM {
	return []plugin.IPAM{
		{Plugin: addr.HostLocal(), Validate: addr.ValidateHostLocal, Plan: addr.PlanHostLocal},
		{Plugin: addr.Static(), Validate: addr.ValidateStatic, Plan: addr.Static().Funcs.Add},
	}
}

// Declarative are the plugins that state what should exist.
func Declarative() []plugin.Plugin {
	return []plugin.Plugin{
		link.Bridge(),
		link.HostDevice(),
		link.IPvlan(),
		link.Loopback(),
		link.Macvlan(),
		link.PTP(),
		link.VLAN(),
		chain.Portmap(),
	}
}

// All are the plugins as the protocol sees them.
func All() []skel.Plugin {
	var all []skel.Plugin
	env := plugin.Env{IPAM: IPAM()}
	for _, i := range env.IPAM {
		all = append(all, i.Plugin)
	}
	for _, p := range Declarative() {
		all = append(all, p.Skel(env))
	}
	return all
}
