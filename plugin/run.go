package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	ipamdir "github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// Env is what the plugins of one program share.
type Env struct {
	// IPAM are the plugins that run inside this process when ipam.type
	// resolves to this very program.
	IPAM []IPAM
	// Program is the path of the one that has the same IPAM plugins as this, if it
	// is another: what resolves to it runs inside this process, too.
	Program string
	// Root of runtime state; "": see package attach.
	Root string
}

// Skel makes the plugin one that speaks the protocol.
func (p Plugin) Skel(env Env) skel.Plugin {
	r := &runner{p, env, time.Now()}
	return skel.Plugin{Name: p.Name, About: p.About, Funcs: skel.CNIFuncs{
		Add: r.add, Check: r.check, Del: r.del, GC: r.gc, Status: r.status,
	}}
}

type runner struct {
	Plugin
	env   Env
	began time.Time // no later than the first thing this process looked at
}

// job is one operation on one attachment.
type job struct {
	*runner
	args   *skel.CmdArgs
	conf   Config
	base   *Conf
	att    *Attachment
	netns  *kernel.Netns // nil when gone, on DEL
	engine *kernel.Engine
	ovs    kernel.Switch // nil: the plugin has nothing there
	dir    *attach.Dir
	ipam   ipam
	noted  bool // the record says what this operation builds
}

// begin opens what an operation needs. Those that build or compare are strict:
// a namespace that is gone, or a configuration that is not valid, is an error.
// Those that remove work from names and marks, and need neither.
func (r *runner) begin(args *skel.CmdArgs, strict bool) (_ *job, err error) {
	if r.IfName != "" {
		own := *args
		own.IfName = r.IfName
		args = &own
	}
	j := &job{runner: r, args: args, dir: attach.Open(r.env.Root)}
	if args.Netns != "" {
		j.netns, err = kernel.OpenNetns(args.Netns)
		if err != nil && (strict || !errors.Is(err, os.ErrNotExist)) {
			return nil, cni.Errorf(cni.CodeInvalidEnvironment, "CNI_NETNS: %w", err)
		}
	}
	j.engine, err = kernel.Open(j.netns, kernel.Options{Alive: j.dir.Alive})
	if err != nil {
		j.end()
		return nil, err
	}
	if j.conf, j.att, err = r.parse(args, facts{j.engine}); err != nil && strict {
		j.end()
		return nil, err
	}
	j.base = j.conf.common()
	if s, ok := j.conf.(Switcher); ok {
		j.ovs = s.Switch(j.att)
		j.engine.UseSwitch(j.ovs)
	}
	if !r.Chained {
		j.ipam = r.findIPAM(j.base, args)
	}
	return j, nil
}

func (j *job) end() {
	if j.ovs != nil {
		j.ovs.Close()
	}
	if j.engine != nil {
		j.engine.Close()
	}
	if j.netns != nil {
		j.netns.Close()
	}
}

// previous is the result that a chained plugin works on.
func (j *job) previous() (*cni.Result, error) {
	if j.base.Prev == nil {
		return nil, cni.Errorf(cni.CodeInvalidNetworkConfig,
			"%s must be called as chained plugin: it needs the prevResult of a plugin before it in the list", j.Name)
	}
	return j.base.Prev.Clone(), nil
}

func (r *runner) add(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	j, err := r.begin(args, true)
	if err != nil {
		return nil, err
	}
	defer j.end()
	if r.Exclusive {
		if err := j.netns.Lock(ctx); err != nil {
			return nil, cni.Errorf(cni.CodeTryAgainLater, "CNI_NETNS: %w", err)
		}
	}
	if err := j.clear(ctx); err != nil {
		return nil, err
	}
	unlock := func() {}
	if c, ok := j.conf.(Claimer); ok {
		if unlock, err = j.dir.Claim(ctx, j.att.Owner, c.Claims()); err != nil {
			return nil, err
		}
	}
	res, err := j.build(ctx)
	unlock() // before an undo, which takes the locks to free the claims
	if err != nil {
		return nil, errors.Join(err, j.undo(ctx))
	}
	return res, nil
}

// build is ADD's work: what it made when it fails is undone by the caller.
func (j *job) build(ctx context.Context) (res *cni.Result, err error) {
	res = &cni.Result{}
	if j.Chained {
		if res, err = j.previous(); err != nil {
			return nil, err
		}
	}
	links, err := j.conf.Links(j.att, res)
	if err != nil {
		return nil, err
	}
	rec, part, err := j.note()
	if err != nil {
		return nil, err
	}
	defer rec.Unlock()
	part.Objects = links
	if j.ipam.afterLinks() {
		if err := j.applyNoted(rec, links); err != nil {
			return nil, err
		}
		links = nil
	}
	if err := j.address(ctx, res); err != nil {
		return nil, err
	}
	rest, err := j.conf.Addressed(j.att, res)
	if err != nil {
		return nil, err
	}
	part.Objects = append(part.Objects, rest...)
	if j.Chained && len(part.Objects) == 0 {
		return res, nil // nothing to do, nothing to remember
	}
	part.Result = res
	if err := j.applyNoted(rec, append(links, rest...)); err != nil {
		return nil, err
	}
	return res, j.dir.Finish(rec)
}

// applyNoted writes the record before it changes anything.
func (j *job) applyNoted(rec *attach.Record, list kernel.Objects) error {
	store := j.dir.Write
	if len(rec.Parts) == 1 && !j.noted {
		store = j.dir.Create
	}
	err := store(rec)
	if errors.Is(err, os.ErrExist) {
		return cni.Errorf(cni.CodeTryAgainLater, "another ADD of container %s to network %s as %s is at work", rec.ContainerID, rec.Network, rec.IfName)
	}
	if err != nil {
		return err
	}
	j.noted = true
	return j.engine.Apply(list)
}

// note adds this plugin's part to the record of the attachment.
func (j *job) note() (*attach.Record, *attach.Part, error) {
	rec, err := j.dir.Read(j.att.Owner)
	if errors.Is(err, os.ErrNotExist) {
		rec, err = j.dir.New(j.att.Network, j.att.ContainerID, j.att.IfName, j.att.Netns), nil
	}
	if err != nil {
		return nil, nil, err
	}
	part := attach.Part{Plugin: j.Name, IPAM: j.ipam.name, PID: os.Getpid()}
	if c, ok := j.conf.(Claimer); ok {
		part.Ports = c.Claims()
	}
	rec.Parts = append(rec.Parts, part)
	return rec, &rec.Parts[len(rec.Parts)-1], nil
}

// address asks IPAM and adds what it gave to the result.
func (j *job) address(ctx context.Context, res *cni.Result) error {
	if j.Chained || j.ipam.name == "" {
		return nil
	}
	got, err := j.ipam.add(ctx)
	if err != nil && j.abandoned(err) {
		j.ipam.again = true
		got, err = j.ipam.add(ctx)
	}
	if err != nil {
		return fmt.Errorf("ipam %s: %w", j.ipam.name, err)
	}
	if len(got.IPs) == 0 {
		return fmt.Errorf("ipam %s gave no address", j.ipam.name)
	}
	j.use(res, got)
	return nil
}

// abandoned tells whether the addresses that the attachment is said to hold
// already are left of an ADD that was cut off before its record was written:
// the container has no such interface.
func (j *job) abandoned(err error) bool {
	var held *ipamdir.HeldError
	if !errors.As(err, &held) {
		return false
	}
	_, err = j.engine.Link(kernel.Container, j.att.IfName)
	return errors.Is(err, os.ErrNotExist)
}

// use adds what IPAM gave to the result, on the attachment's interface.
func (j *job) use(res, got *cni.Result) {
	res.IPs, res.Routes, res.DNS = got.IPs, got.Routes, got.DNS
	own := slices.IndexFunc(res.Interfaces, func(i cni.Interface) bool {
		return i.Name == j.att.IfName && i.Sandbox != ""
	})
	for i := range res.IPs {
		res.IPs[i].Interface = nil
		if own >= 0 {
			res.IPs[i].Interface = &own
		}
	}
}
