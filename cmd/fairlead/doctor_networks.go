package main

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
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugins"
	ipamplugins "github.com/fairlead/fairlead/plugins/ipam"
	"github.com/fairlead/fairlead/skel"
)

// networks looks at what the host's configurations need.
func (l *looker) networks(ctx context.Context, records []*attach.Record) {
	for _, name := range networkNames(l.confDir()) {
		list, err := libcni.LoadNetworkConf(l.confDir(), name)
		if err != nil {
			l.miss("network "+name, err)
			continue
		}
		for _, p := range list.Plugins {
			l.plugin(name, p.Network.Type)
			l.plugin(name, p.Network.IPAM.Type)
			if p.Network.IPAM.Type == "host-local" {
				l.ranges(list, p, records)
			}
			if l.asksAgent(p) {
				l.facts.Agent.Needed = append(l.facts.Agent.Needed, name)
			}
		}
	}
	if len(l.facts.Agent.Needed) > 0 {
		l.agent(ctx)
	}
}

// asksAgent tells whether a plugin needs the node agent; another whereabouts than
// ours does not.
func (l *looker) asksAgent(p *libcni.NetworkConfig) bool {
	switch {
	case p.Network.Type == "fairlead-net", p.Network.IPAM.Type == "fairlead-ipam":
		return true
	case p.Network.IPAM.Type != "whereabouts":
		return false
	}
	file, err := invoke.FindInPath("whereabouts", l.pluginPath())
	return err == nil && isOurs(file)
}

// agent asks the node agent how it is.
func (l *looker) agent(ctx context.Context) {
	var s agent.State
	err := local.Open(l.libDir(), l.runDir()).Call(ctx, local.OpAgent, struct{}{}, &s)
	if away, is := errors.AsType[*local.AwayError](err); is {
		l.facts.Agent.Away = away.Socket + ": " + away.Err.Error()
	} else if err != nil {
		l.facts.Agent.Away = err.Error()
	}
	l.facts.Agent.Why, l.facts.Agent.Store, l.facts.Agent.Cannot = s.Why, s.Store, s.Cannot
}

func (l *looker) plugin(network, typ string) {
	if typ == "" {
		return
	}
	_, err := invoke.FindInPath(typ, l.pluginPath())
	if !errors.Is(err, os.ErrNotExist) {
		return
	}
	m := doctor.MissingPlugin{Network: network, Type: typ, Dirs: l.pluginPath()}
	for _, dir := range l.pluginPath() {
		file := filepath.Join(dir, "fairlead-cni")
		ours := slices.ContainsFunc(plugins.All(), func(p skel.Plugin) bool { return p.Name == typ })
		if _, err := os.Stat(file); err == nil && ours {
			m.Ours = file
		}
	}
	l.facts.Plugins = append(l.facts.Plugins, m)
}

const countMost = 1 << 16 // addresses of a range are counted up to this

// ranges counts what is held of each range set.
func (l *looker) ranges(list *libcni.NetworkConfigList, p *libcni.NetworkConfig, records []*attach.Record) {
	req, err := rawjson.ParseObject(p.Bytes)
	if err != nil {
		return
	}
	req.SetString("cniVersion", list.CNIVersion)
	req.SetString("name", list.Name)
	dir, sets, err := ipamplugins.HostLocalRanges(req.Bytes())
	if err != nil {
		l.miss("the ranges of network "+list.Name, err)
		return
	}
	held, err := ipam.Held(dir, list.Name)
	l.miss("addresses of "+list.Name, err)
	for _, set := range sets {
		use := doctor.RangeUse{Network: list.Name, Range: set.String(), Size: set.Size(countMost)}
		for _, h := range held {
			if _, in := set.Find(h.Addr); !in {
				continue
			}
			use.Held++
			if slices.ContainsFunc(records, func(r *attach.Record) bool {
				return r.Network == list.Name && r.ContainerID == h.Owner.ContainerID && state(r) == stateGone
			}) {
				use.Gone++
			}
		}
		l.facts.Ranges = append(l.facts.Ranges, use)
	}
}
