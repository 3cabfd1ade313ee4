package gather

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/internal/builtin"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// networks examines what the host's network configurations need: plugins, addresses and the agent.
func (g *gatherer) networks(ctx context.Context, records []*attach.Record) {
	files, err := libcni.ConfFiles(g.ConfDir, netconf.Extensions())
	g.miss("network configurations", err)
	for _, file := range files { // Lists skips those that are not valid
		_, err := netconf.LoadFile(file)
		g.miss("a network configuration", err)
	}
	for _, list := range netconf.Lists(g.ConfDir) {
		name := list.Name
		members, err := netconf.Members(list)
		g.miss("network "+name, err)
		for _, p := range list.Plugins {
			if !slices.Contains(members, p) { // others are inside
				g.plugin(name, p.Network.Type)
			}
		}
		for _, p := range members {
			g.plugin(name, p.Network.Type)
			g.plugin(name, p.Network.IPAM.Type)
			if p.Network.IPAM.Type == "host-local" {
				g.ranges(list, p, records)
			}
			if g.needsAgent(p) {
				g.facts.Agent.Needed = append(g.facts.Agent.Needed, name)
			}
		}
	}
	if len(g.facts.Agent.Needed) > 0 {
		g.agent(ctx)
	}
}

// needsAgent reports whether a plugin needs the node agent. The reference whereabouts does not.
func (g *gatherer) needsAgent(p *libcni.NetworkConfig) bool {
	switch {
	case p.Network.Type == "fairlead-net", p.Network.IPAM.Type == "fairlead-ipam":
		return true
	case p.Network.IPAM.Type != "whereabouts":
		return false
	}
	file, err := invoke.FindInPath("whereabouts", g.PluginDirs)
	return err == nil && builtin.IsOurs(file)
}

// agent asks the node agent for its state.
func (g *gatherer) agent(ctx context.Context) {
	var s agent.State
	err := local.Open(g.LibDir, g.RunDir).Call(ctx, local.OpAgent, struct{}{}, &s)
	if away, is := errors.AsType[*local.AwayError](err); is {
		g.facts.Agent.Away = away.Socket + ": " + away.Err.Error()
	} else if err != nil {
		g.facts.Agent.Away = err.Error()
	}
	g.facts.Agent.Reasons, g.facts.Agent.StoreError, g.facts.Agent.Failures = s.Reasons, s.StoreError, s.Failures
	g.facts.Agent.NotReached = s.Unreachable
}

// plugin notes a plugin that is missing from CNI_PATH.
func (g *gatherer) plugin(network, typ string) {
	if typ == "" {
		return
	}
	_, err := invoke.FindInPath(typ, g.PluginDirs)
	if !errors.Is(err, os.ErrNotExist) {
		return
	}
	m := doctor.MissingPlugin{Network: network, Type: typ, Dirs: g.PluginDirs}
	for _, dir := range g.PluginDirs {
		file := filepath.Join(dir, "fairlead-cni")
		ours := slices.ContainsFunc(plugins.All(), func(p skel.Plugin) bool { return p.Name == typ })
		if _, err := os.Stat(file); err == nil && ours {
			m.Ours = file
		}
	}
	g.facts.Plugins = append(g.facts.Plugins, m)
}

// maxRange limits the addresses of a range that are counted.
const maxRange = 1 << 16

// ranges counts the addresses in use of each range set.
func (g *gatherer) ranges(list *libcni.NetworkConfigList, p *libcni.NetworkConfig, records []*attach.Record) {
	dir, sets, err := netconf.HostLocalRanges(list, p)
	if err != nil {
		g.miss("the ranges of network "+list.Name, err)
		return
	}
	held, err := ipam.Allocations(dir, list.Name)
	g.miss("addresses of "+list.Name, err)
	for _, set := range sets {
		use := doctor.RangeUse{Network: list.Name, Range: set.String(), Size: set.Size(maxRange)}
		for _, h := range held {
			if _, in := set.Find(h.Addr); !in {
				continue
			}
			use.Held++
			if slices.ContainsFunc(records, func(r *attach.Record) bool {
				return r.Network == list.Name && r.ContainerID == h.Owner.ContainerID && r.State() == attach.StateGone
			}) {
				use.Gone++
			}
		}
		g.facts.Ranges = append(g.facts.Ranges, use)
	}
}
