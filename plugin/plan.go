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

// Planned is what an ADD would make and yield.
type Planned struct {
	Objects kernel.Objects
	Result  *cni.Result
	// Unasked is the IPAM plugin that cannot tell without giving: the addresses,
	// and what depends on them, are missing.
	Unasked string
	// Why it cannot; "": it never can.
	Why string
}

// Plan states what an ADD would make, and changes nothing: no address is
// reserved, no record written, the kernel only looked at. before is what
// plugins earlier in the list have planned.
func (p Plugin) Plan(ctx context.Context, args *skel.CmdArgs, env Env, before kernel.Objects) (*Planned, error) {
	r := &runner{p, env}
	s := newSession(env.Root)
	defer s.close()
	j, err := r.begin(s, args, true)
	if err != nil {
		return nil, err
	}
	defer j.end()
	j.att.Facts = foreseen{j.att.Facts, before}
	out := &Planned{Result: &cni.Result{}}
	if p.Chained {
		if out.Result, err = j.previous(); err != nil {
			return nil, err
		}
	}
	if out.Objects, err = j.conf.Links(j.att, out.Result); err != nil {
		return nil, err
	}
	out.Unasked, err = j.planAddress(ctx, out.Result)
	if u, ok := errors.AsType[*UnforeseenError](err); ok {
		out.Unasked, out.Why, err = j.ipam.name, u.Error(), nil
	}
	if err != nil {
		return nil, err
	}
	rest, err := j.conf.Addressed(j.att, out.Result)
	out.Objects = append(out.Objects, rest...)
	return out, err
}

// planAddress asks an IPAM plugin of ours what it would give.
func (j *job) planAddress(ctx context.Context, res *cni.Result) (unasked string, err error) {
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

// Validate refuses a configuration that ADD would refuse, as far as that can
// be told without a machine: by the plugin's own keys and its IPAM's.
func (p Plugin) Validate(data []byte, env Env) error {
	args := &skel.CmdArgs{ContainerID: "container", IfName: "eth0", StdinData: data}
	c, _, err := p.parse(args, nowhere{})
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

// foreseen are the facts once earlier plugins' objects exist.
type foreseen struct {
	Facts
	before kernel.Objects
}

func (f foreseen) Link(s kernel.Side, name string) (*kernel.LinkInfo, error) {
	for _, o := range f.before {
		if l := kernel.DescribeLink(o, s, name); l != nil {
			return l, nil
		}
	}
	return f.Facts.Link(s, name)
}

// Sysctl is unknown of a link that is not there yet.
func (f foreseen) Sysctl(s kernel.Side, key string) (string, error) {
	v, err := f.Facts.Sysctl(s, key)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return v, err
}

func (f foreseen) LinkTo(a netip.Addr) (string, error) {
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

// nowhere are the facts of no machine.
type nowhere struct{}

func (nowhere) Link(kernel.Side, string) (*kernel.LinkInfo, error)        { return nil, os.ErrNotExist }
func (nowhere) Links(kernel.Side) ([]*kernel.LinkInfo, error)             { return nil, os.ErrNotExist }
func (nowhere) Sysctl(kernel.Side, string) (string, error)                { return "", os.ErrNotExist }
func (nowhere) LinkTo(netip.Addr) (string, error)                         { return "", os.ErrNotExist }
func (nowhere) OtherEnd(*kernel.LinkInfo) (*kernel.LinkInfo, error)       { return nil, os.ErrNotExist }
func (nowhere) DefaultLink(kernel.Side) (string, error)                   { return "", os.ErrNotExist }
func (nowhere) Routes(kernel.Side, byte, int) ([]kernel.RouteInfo, error) { return nil, nil }
func (nowhere) Rules(kernel.Side, byte) ([]kernel.RuleInfo, error)        { return nil, nil }
func (nowhere) Dropping() ([]kernel.ForwardDropChain, error)              { return nil, nil }
func (nowhere) Firewalld() bool                                           { return false }
func (nowhere) Uplinks() []string                                         { return nil }
func (nowhere) HostID() string                                            { return "" }

// State is the pure part alone: what a configuration states for a container,
// given facts and, in r, the addresses that IPAM, or the plugins before, gave.
// Tests compare it as text.
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
