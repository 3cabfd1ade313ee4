// Package gather collects the facts about this host and its attachments that package doctor judges.
package gather

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/fairlead/fairlead/agent/backend"
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/doctor"
	"github.com/fairlead/fairlead/gc"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/repair"
)

// Options say where to look.
type Options struct {
	Runtime    *libcni.CNIConfig // reads the cache of results
	StateDir   string            // directory of runtime state; "" is the default
	RunDir     string            // the same, with the default filled in
	LibDir     string            // directory of addresses
	ConfDir    string            // directory of network configurations
	PluginDirs []string          // directories of CNI_PATH

	// Include chooses attachments. Nil chooses all attachments, and the networks and the agent of the host, too.
	Include func(*attach.Record) bool
	// Probe sends a ping to the gateways from inside the containers.
	Probe bool
	// Progress is called before each attachment. The function that it returns is called afterwards. It may be nil.
	Progress func(done, of int) (end func())
}

// gatherer collects facts.
type gatherer struct {
	Options
	dir         *attach.Dir
	engine      *kernel.Engine // of the host alone
	facts       *doctor.Facts
	addressDirs []gc.HostLocalDir
	inside      map[netns.ID]*inspect.Survey // by namespace: a container may have many attachments
	unseen      []string
}

// Facts returns the facts, and what could not be read.
func Facts(ctx context.Context, o Options) (*doctor.Facts, []string, error) {
	g := &gatherer{Options: o, dir: attach.Open(o.StateDir), inside: map[netns.ID]*inspect.Survey{}}
	g.facts = &doctor.Facts{StateDir: g.dir.Usable(), OtherBoot: g.dir.OtherBoots(), Sysctls: map[string]string{}}
	records, damaged, err := g.dir.Scan("")
	g.facts.Damaged = damaged
	if err != nil && g.facts.StateDir == nil {
		return nil, nil, err
	}
	if g.engine, err = kernel.Open(nil, kernel.Options{}); err != nil {
		return nil, nil, err
	}
	defer g.engine.Close()
	if err := g.host(); err != nil {
		return nil, nil, err
	}
	cached, err := o.Runtime.GetCachedAttachments("")
	g.miss("the cache of results", err)
	g.addressDirs, err = gc.HostLocalDirs(o.LibDir, o.ConfDir, cached)
	g.miss("the directories of addresses", err)
	var namespaces attach.Namespaces
	for _, r := range records {
		g.miss("the namespace of "+r.ContainerID, namespaces.Follow(r))
	}
	for i, r := range records {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if o.Include != nil && !o.Include(r) {
			continue
		}
		end := func() {}
		if o.Progress != nil {
			end = o.Progress(i, len(records))
		}
		unseen := len(g.unseen)
		if a := g.attachment(ctx, r); g.dir.IsCurrent(r) {
			g.facts.Attachments = append(g.facts.Attachments, a)
		} else { // a DEL removed it meanwhile
			g.unseen = g.unseen[:unseen]
		}
		end()
	}
	if o.Include == nil {
		g.networks(ctx, records)
	}
	return g.facts, g.unseen, nil
}

// miss notes what could not be read.
func (g *gatherer) miss(what string, err error) {
	if err != nil {
		g.unseen = append(g.unseen, what+": "+err.Error())
	}
}

// host collects the facts about the host alone.
func (g *gatherer) host() (err error) {
	if g.facts.Host, err = inspect.NewSurvey(g.engine, kernel.Host); err != nil {
		return err
	}
	for _, l := range g.facts.Host.Links {
		if strings.HasPrefix(l.Alias, backend.LinkAlias("vxlan")) {
			g.facts.Tunnels = append(g.facts.Tunnels, l)
		}
	}
	g.facts.Ruleset, err = inspect.ReadRuleset(g.engine)
	g.miss("the ruleset", err)
	g.sysctl("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
		"net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max")
	g.facts.Upstream = hostNameservers("/run/systemd/resolve/resolv.conf", "/etc/resolv.conf")
	return nil
}

func (g *gatherer) sysctl(keys ...string) {
	for _, k := range keys {
		if v, err := g.engine.Sysctl(kernel.Host, k); err == nil {
			g.facts.Sysctls[k] = v
		}
	}
}

// attachment collects what the record says and what exists.
func (g *gatherer) attachment(ctx context.Context, r *attach.Record) *doctor.Attachment {
	a := &doctor.Attachment{Network: r.Network, Container: r.ContainerID, IfName: cmp.Or(r.Link, r.IfName), Netns: r.Netns, State: r.State()}
	list, err := r.Objects()
	g.miss("the record of "+r.ContainerID, err)
	a.Objects = list
	recorded(a, r)
	if a.State != attach.StateOK {
		return a
	}
	lease := repair.LeaseOf(g.Runtime, r)
	a.Lease = doctor.Lease{Problem: lease.Problem, Away: lease.Away, Unknown: lease.Unknown}
	list = lease.Valid(list)
	if isGone(r.Host) {
		a.HostGone = r.Host
		return a
	}
	if r.Host != "" { // an isolated network does not use this host's routes and rules
		g.miss("the objects of "+r.ContainerID, repair.InHost(r, func() error { return g.isolated(a, r, list) }))
		return a
	}
	e, end, err := repair.Engine(g.dir, r)
	if err != nil {
		g.miss("the namespace of "+r.ContainerID, err)
		return a
	}
	defer end()
	a.Inside, err = g.survey(e, r)
	g.miss("the namespace of "+r.ContainerID, err)
	a.Lost, err = e.Compare(list, repair.ChangedByOthers(g.Runtime, r)...)
	g.miss("the objects of "+r.ContainerID, err)
	g.paths(a)
	nameserversOf(a, r)
	a.LocalDNS = inspect.Listens(e, kernel.Container, 53)
	g.held(a, r)
	if g.Probe {
		g.ping(ctx, a)
	}
	return a
}

// isGone reports whether the namespace at a path does not exist. "" is this host's namespace.
func isGone(path string) bool {
	if path == "" {
		return false
	}
	ns, err := netns.Open(path)
	if err == nil {
		ns.Close()
	}
	return errors.Is(err, os.ErrNotExist)
}

// survey returns the state of a container's namespace, which it reads once for all attachments of the container.
func (g *gatherer) survey(e *kernel.Engine, r *attach.Record) (s *inspect.Survey, err error) {
	id := r.Namespace()
	if s = g.inside[id]; s != nil {
		return s, nil
	}
	s, err = inspect.NewSurvey(e, kernel.Container)
	if id.File != "" { // an old record lacks it
		g.inside[id] = s
	}
	return s, err
}

// isolated compares the objects of an attachment to an isolated network.
func (g *gatherer) isolated(a *doctor.Attachment, r *attach.Record, list kernel.Objects) error {
	e, end, err := repair.Engine(g.dir, r)
	if err != nil {
		return err
	}
	defer end()
	a.Lost, err = e.Compare(list, repair.ChangedByOthers(g.Runtime, r)...)
	return err
}
