package plugin

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// Planned contains the objects that an ADD would create, and its result.
type Planned struct {
	Objects kernel.Objects
	Result  *cni.Result
	// UnknownIPAM is the IPAM plugin that cannot predict its result. The addresses, and the objects that depend on
	// them, are missing from the plan.
	UnknownIPAM string
	// Why says why the IPAM plugin cannot predict it now; "" if it never can.
	Why string
}

// Plan returns what an ADD would create, and changes nothing: it allocates no address, writes no record and only reads
// from the kernel. before holds the objects planned by earlier plugins of the list.
func (p Plugin) Plan(ctx context.Context, args *skel.CmdArgs, env Env, before kernel.Objects) (*Planned, error) {
	r := &runner{p, env}
	s := newSession(ctx, env.Root)
	defer s.close()
	j, err := r.begin(s, args, true)
	if err != nil {
		return nil, err
	}
	defer j.end()
	j.att.Facts = plannedFacts{j.att.Facts, before}
	out := &Planned{Result: &cni.Result{}}
	if p.Chained {
		if out.Result, err = j.previous(); err != nil {
			return nil, err
		}
	}
	if out.Objects, err = settle(j.att, out.Result, j.conf.Links); err != nil {
		return nil, err
	}
	out.UnknownIPAM, err = j.planAddress(ctx, out.Result)
	if u, ok := errors.AsType[*CannotPlanError](err); ok {
		out.UnknownIPAM, out.Why, err = j.ipam.name, u.Error(), nil
	}
	if err != nil {
		return nil, err
	}
	rest, err := settle(j.att, out.Result, j.conf.Addressed)
	out.Objects = append(out.Objects, rest...)
	return out, err
}

// planAddress asks an in-process IPAM plugin what it would return.
func (j *job) planAddress(ctx context.Context, res *cni.Result) (unknown string, err error) {
	if j.Chained || j.ipam.name == "" {
		return "", nil
	}
	for _, i := range j.env.IPAM {
		if i.Name == j.ipam.name && i.Plan != nil {
			got, err := i.Plan(ctx, j.args)
			if err == nil {
				j.use(res, got)
			}
			return "", err
		}
	}
	return j.ipam.name, nil
}

// Validate rejects a configuration that ADD would reject, as far as the plugin's and the IPAM plugin's keys tell
// without access to a host.
func (p Plugin) Validate(data []byte, env Env) error {
	args := &skel.CmdArgs{ContainerID: "container", IfName: "eth0", StdinData: data}
	c, _, err := p.parse(args, noFacts{})
	if err != nil || p.Chained {
		return err
	}
	for _, i := range env.IPAM {
		if i.Name == c.common().IPAM.Type && i.Validate != nil {
			return i.Validate(data)
		}
	}
	return nil
}

// plannedFacts answers for the kernel as it will be once the earlier plugins' objects exist.
type plannedFacts struct {
	Facts
	before kernel.Objects
}

func (f plannedFacts) Link(s kernel.Side, name string) (*kernel.LinkInfo, error) {
	for _, o := range f.before {
		if l := kernel.DescribeLink(o, s, name); l != nil {
			return l, nil
		}
	}
	return f.Facts.Link(s, name)
}

// Sysctl returns "" for a link that does not exist yet.
func (f plannedFacts) Sysctl(s kernel.Side, key string) (string, error) {
	v, err := f.Facts.Sysctl(s, key)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return v, err
}

func (f plannedFacts) LinkTo(a netip.Addr) (string, error) {
	link, best := "", -1
	for _, o := range f.before {
		d, ok := kernel.DestinationOf(o)
		if ok && d.Side == kernel.Host && d.Prefix.Masked().Contains(a) && d.Prefix.Bits() > best {
			link, best = d.Link, d.Prefix.Bits()
		}
	}
	if best >= 0 {
		return link, nil
	}
	return f.Facts.LinkTo(a)
}

// noFacts answers for a host without links, routes or rules.
type noFacts struct{}

func (noFacts) Link(kernel.Side, string) (*kernel.LinkInfo, error)             { return nil, os.ErrNotExist }
func (noFacts) Links(kernel.Side) ([]*kernel.LinkInfo, error)                  { return nil, os.ErrNotExist }
func (noFacts) Sysctl(kernel.Side, string) (string, error)                     { return "", os.ErrNotExist }
func (noFacts) LinkTo(netip.Addr) (string, error)                              { return "", os.ErrNotExist }
func (noFacts) OtherEnd(*kernel.LinkInfo) (*kernel.LinkInfo, error)            { return nil, os.ErrNotExist }
func (noFacts) DefaultLink(kernel.Side) (string, error)                        { return "", os.ErrNotExist }
func (noFacts) Addrs(kernel.Side, *kernel.LinkInfo) ([]kernel.AddrInfo, error) { return nil, nil }
func (noFacts) Routes(kernel.Side, byte, int) ([]kernel.RouteInfo, error)      { return nil, nil }
func (noFacts) Rules(kernel.Side, byte) ([]kernel.RuleInfo, error)             { return nil, nil }
func (noFacts) ForwardDropChains(string) ([]kernel.ForwardDropChain, error)    { return nil, nil }
func (noFacts) Firewalld() bool                                                { return false }
func (noFacts) Uplinks() ([]string, error)                                     { return nil, nil }
func (noFacts) HostID() string                                                 { return "" }
func (noFacts) ReadFile(string) ([]byte, error)                                { return nil, os.ErrNotExist }
func (noFacts) Readlink(string) (string, error)                                { return "", os.ErrNotExist }
func (noFacts) Glob(string) ([]string, error)                                  { return nil, nil }

// State returns the objects that a configuration declares for a container, given facts. r holds the addresses from IPAM
// or from earlier plugins. Tests compare the objects as text.
func (p Plugin) State(conf []byte, containerID, ifName, netns string, f Facts, r *cni.Result) (kernel.Objects, error) {
	args := &skel.CmdArgs{ContainerID: containerID, IfName: ifName, Netns: netns, StdinData: conf}
	c, a, err := p.parse(args, f)
	if err != nil {
		return nil, err
	}
	links, err := c.Links(a, r)
	if err != nil {
		return nil, err
	}
	rest, err := c.Addressed(a, r)
	return append(links, rest...), err
}
