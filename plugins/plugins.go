// Package plugins is the list of everything that Fairlead can be called as.
package plugins

import (
	"slices"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins/chain"
	"github.com/fairlead/fairlead/plugins/delegate"
	addr "github.com/fairlead/fairlead/plugins/ipam"
	"github.com/fairlead/fairlead/plugins/link"
	"github.com/fairlead/fairlead/skel"
)

// IPAM are the address plugins.
func IPAM() []plugin.IPAM {
	return []plugin.IPAM{
		{Plugin: addr.DHCP(), NeedsLinks: true, Validate: addr.ValidateDHCP},
		{Plugin: addr.HostLocal(), Validate: addr.ValidateHostLocal, Plan: addr.PlanHostLocal},
		{Plugin: addr.Static(), Validate: addr.ValidateStatic, Plan: addr.Static().Funcs.Add},
	}
}

// Declarative are the plugins that state what should exist.
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
	find := func(name string) (skel.Plugin, bool) {
		i := slices.IndexFunc(all, func(p skel.Plugin) bool { return p.Name == name })
		if i < 0 {
			return skel.Plugin{}, false
		}
		return all[i], true
	}
	return append(all, delegate.Flannel(find), delegate.MiniCNI(find))
}
