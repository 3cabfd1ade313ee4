package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	ipamdir "github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// Env is shared by the plugins of one program.
type Env struct {
	// IPAM lists the plugins that run in this process when ipam.type resolves to this program or to one with the same
	// plugins.
	IPAM []IPAM
	// SameBuild reports whether another program's file has the same plugins as this one. info describes the file.
	// SameBuild may be nil.
	SameBuild func(file string, info fs.FileInfo) bool
	// Root is the directory of runtime state; see package attach for the default.
	Root string
}

// Skel returns the plugin as one that speaks the CNI protocol.
func (p Plugin) Skel(env Env) skel.Plugin {
	r := &runner{p, env}
	return skel.Plugin{Name: p.Name, About: p.About, Version: p.Version, Funcs: skel.CNIFuncs{
		Add: r.add, Check: r.check, Del: r.del, GC: r.gc, Status: r.status,
	}}
}

type runner struct {
	Plugin
	env Env
}

// job is one operation of one plugin on one attachment.
type job struct {
	*runner
	*session
	member int // position in the session's list
	args   *skel.CmdArgs
	conf   Config
	base   *Conf
	att    *Attachment
	ovs    kernel.Switch // nil: the plugin has no objects in Open vSwitch
	ipam   ipam
	start  time.Duration // kernel.Uptime before this operation read anything

	objects  kernel.Objects // the objects that it declares or, on DEL, removes
	recorded bool           // DEL: the objects are from the record
	ports    []attach.Port  // DEL: the host ports claimed in the record
	written  bool           // the record has the objects
	result   *cni.Result
}

// begin opens what an operation needs. Operations that create or compare are strict: a missing namespace or an invalid
// configuration is an error. Operations that remove need neither; they work from names and owner tags.
func (r *runner) begin(s *session, args *skel.CmdArgs, strict bool) (_ *job, err error) {
	if r.IfName != "" {
		own := *args
		own.IfName = r.IfName
		args = &own
	}
	j := &job{runner: r, session: s, member: s.member, args: args, start: kernel.Uptime()}
	if err := s.begin(args.Netns, strict); err != nil {
		return nil, err
	}
	if j.conf, j.att, err = r.parse(args, facts{s}); err != nil && strict {
		return nil, err
	}
	j.base = j.conf.common()
	if sw, ok := j.conf.(Switcher); ok {
		j.ovs = sw.Switch(j.att)
		s.engine.UseSwitch(j.ovs)
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
	j.ovs = nil
}

// previous returns the result that a chained plugin works on.
func (j *job) previous() (*cni.Result, error) {
	if j.base.Prev == nil {
		return nil, cni.Errorf(cni.CodeInvalidNetworkConfig,
			"%s must be called as chained plugin: put it after another plugin in the list, whose result it needs as prevResult", j.Name)
	}
	return j.base.Prev.Clone(), nil
}

// add plans the plugin's ADD and, unless it shares a session with other plugins, applies it.
func (r *runner) add(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	s, shared := sessionOf(ctx, args.Netns, r.env.Root)
	if shared {
		return r.join(ctx, s, args)
	}
	defer s.close()
	var res *cni.Result
	err := contain("plugin "+r.Name, func() (err error) {
		if res, err = r.join(ctx, s, args); err == nil {
			err = s.commit()
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.undo(ctx))
	}
	return res, nil
}

// contain turns a panic of f into an error, so that its caller undoes what f did.
func contain(who string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = cni.Errorf(cni.CodeGeneric, "ADD: %s panicked: %v", who, p).WithDetails(string(debug.Stack()))
		}
	}()
	return f()
}

func (r *runner) join(ctx context.Context, s *session, args *skel.CmdArgs) (*cni.Result, error) {
	j, err := r.begin(s, args, true)
	if err != nil {
		return nil, err
	}
	if err := j.reserve(ctx); err != nil {
		j.end()
		return nil, err
	}
	s.jobs = append(s.jobs, j)
	return j.build(ctx)
}

// reserve takes the locks and host ports that only one attachment can have, and cleans up an earlier ADD. It never
// waits for a lock while it holds one that a list in another order may wait for.
func (j *job) reserve(ctx context.Context) error {
	c, claims := j.conf.(Claimer)
	if (claims || j.Exclusive) && len(j.unlocks) > 0 {
		if err := j.flush(); err != nil {
			return err
		}
		j.unlock()
	}
	if j.Exclusive {
		if err := j.lock(ctx); err != nil {
			return cni.Errorf(cni.CodeTryAgainLater, "CNI_NETNS: %w", err)
		}
	}
	if err := j.removeEarlier(ctx); err != nil || !claims {
		return err
	}
	unlock, err := j.dir.Claim(ctx, j.att.Owner, c.Claims())
	if err == nil {
		j.unlocks = append(j.unlocks, unlock)
	}
	return err
}

// build computes the ADD's objects and result. If it fails, the caller undoes what was applied.
func (j *job) build(ctx context.Context) (res *cni.Result, err error) {
	if _, err := j.loadRecord(j.att.Owner); err != nil {
		return nil, err
	}
	res = &cni.Result{}
	if j.Chained {
		if res, err = j.previous(); err != nil {
			return nil, err
		}
	}
	links, err := settle(j.att, res, j.conf.Links)
	if err != nil {
		return nil, err
	}
	j.declare(j, links)
	if j.ipam.afterLinks() {
		if err := j.flush(); err != nil {
			return nil, err
		}
	}
	if err := j.address(ctx, res); err != nil {
		return nil, err
	}
	rest, err := settle(j.att, res, j.conf.Addressed)
	if err != nil {
		return nil, err
	}
	j.result = res
	j.declare(j, rest)
	return res, nil
}

// part returns the plugin's part of the record.
func (j *job) part() attach.Part {
	p := attach.Part{Plugin: j.Name, IPAM: j.ipam.name, PID: os.Getpid(), Conf: j.confHash(), Objects: attach.LazyOf(j.objects), Result: attach.LazyOf(j.result)}
	if c, ok := j.conf.(Claimer); ok {
		p.Ports = c.Claims()
	}
	return p
}

// confHash identifies the configuration, without the result of the earlier plugins.
func (j *job) confHash() string {
	conf, err := rawjson.ParseObject(j.args.StdinData)
	if err != nil {
		return ""
	}
	conf.Delete("prevResult")
	return kernel.Hash(string(conf.Bytes()))[:16]
}

// address calls IPAM and adds its addresses to the result.
func (j *job) address(ctx context.Context, res *cni.Result) error {
	if j.Chained || j.ipam.name == "" {
		return nil
	}
	got, err := j.ipam.add(ctx)
	if err != nil && j.isLeftover(err) {
		j.ipam.reuse = true
		got, err = j.ipam.add(ctx)
	}
	if err != nil {
		return fmt.Errorf("ipam %s: %w", j.ipam.name, err)
	}
	if len(got.IPs) == 0 {
		return fmt.Errorf("ipam %s returned no address", j.ipam.name)
	}
	if err := usable(got); err != nil {
		return fmt.Errorf("ipam %s: %w", j.ipam.name, err)
	}
	j.use(res, got)
	return nil
}

// usable returns an error for addresses and routes that the kernel would take and then not use.
func usable(r *cni.Result) error {
	for _, ip := range r.IPs {
		switch a := ip.Address.Addr(); {
		case a.IsUnspecified() || a.IsMulticast():
			return fmt.Errorf("address %s: want a unicast address", ip.Address)
		case a.Is4In6():
			return fmt.Errorf("address %s: want an IPv4 or an IPv6 address", ip.Address)
		case ip.Gateway.IsValid() && ip.Gateway.Is4() != a.Is4():
			return fmt.Errorf("address %s with gateway %s: want a gateway of the same address family", ip.Address, ip.Gateway)
		}
	}
	for _, rt := range r.Routes {
		if rt.GW.IsValid() && rt.GW.Is4() != rt.Dst.Addr().Is4() {
			return fmt.Errorf("route to %s via %s: want a gateway of the same address family", rt.Dst, rt.GW)
		}
	}
	return nil
}

// isLeftover reports whether the addresses that the attachment already holds are from an ADD that was interrupted
// before it wrote its record: the container has no such interface.
func (j *job) isLeftover(err error) bool {
	var held *ipamdir.AlreadyAllocatedError
	if !errors.As(err, &held) || held.Legacy {
		return false
	}
	_, err = j.engine.Link(kernel.Container, j.att.IfName)
	return errors.Is(err, os.ErrNotExist)
}

// ownInterface returns the index of the attachment's interface in a result, or -1.
func (j *job) ownInterface(r *cni.Result) int {
	return slices.IndexFunc(r.Interfaces, func(i cni.Interface) bool { return i.Name == j.att.IfName && i.Sandbox != "" })
}

// use adds IPAM's result to the result, on the attachment's interface.
func (j *job) use(res, got *cni.Result) {
	res.IPs, res.Routes, res.DNS = got.IPs, got.Routes, got.DNS
	own := j.ownInterface(res)
	for i := range res.IPs {
		res.IPs[i].Interface = nil
		if own >= 0 {
			res.IPs[i].Interface = &own
		}
	}
}
