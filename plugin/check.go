package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// check compares the kernel with prevResult and the configuration, and reports every object that differs.
func (r *runner) check(ctx context.Context, args *skel.CmdArgs) error {
	s, shared := sessionOf(ctx, args.Netns, r.env.Root)
	if !shared {
		defer s.close()
	}
	j, err := r.begin(s, args, true)
	if err != nil {
		return err
	}
	defer j.end()
	prev, err := j.previous()
	if err != nil && j.IfName != "" {
		prev, err = &cni.Result{}, nil
	}
	if err != nil {
		return cni.Errorf(cni.CodeInvalidNetworkConfig, "CHECK needs a prevResult: pass the result of the ADD")
	}
	list, err := j.expectedObjects(prev)
	if err != nil {
		return err
	}
	diffs, err := j.engine.Check(list)
	if len(diffs) > 0 {
		if rec, e := j.dir.Read(j.att.Owner); e == nil && rec.Adopted {
			diffs = adopted(diffs)
		} else if e == nil {
			diffs = j.withoutStored(diffs, rec)
		}
	}
	return errors.Join(j.ipam.check(ctx), err, differences(diffs))
}

// withoutStored drops the values that the kernel returns in the form that ADD recorded.
func (j *job) withoutStored(diffs []kernel.Difference, rec *attach.Record) (out []kernel.Difference) {
	var recorded kernel.Objects
	for _, p := range rec.Parts {
		if list, err := p.Objects.Get(); err == nil {
			recorded = append(recorded, list...)
		}
	}
	for _, d := range diffs {
		if o, ok := kernel.WithStored(d.Object, recorded); ok {
			if now, err := j.engine.Check(kernel.Objects{o}); err == nil && len(now) == 0 {
				continue
			}
		}
		out = append(out, d)
	}
	return out
}

func differences(diffs []kernel.Difference) error {
	if len(diffs) == 0 {
		return nil
	}
	lines := make([]string, len(diffs))
	for i, d := range diffs {
		lines[i] = d.String()
	}
	return cni.Errorf(cni.CodeGeneric, "%d objects of the attachment differ from its configuration", len(diffs)).
		WithDetails(strings.Join(lines, "\n"))
}

// expectedObjects returns the objects for a known result. A plugin that creates the interface uses only the addresses
// of that interface. A plugin with a fixed interface (lo) needs none in the result: a later plugin of the list replaces
// the result.
func (j *job) expectedObjects(prev *cni.Result) (kernel.Objects, error) {
	res := prev
	if !j.Chained && j.IfName == "" {
		res = &cni.Result{Routes: prev.Routes, DNS: prev.DNS}
		own, err := j.ownIPs(prev)
		if err != nil {
			return nil, err
		}
		res.IPs = own
	}
	links, err := j.conf.Links(j.att, res)
	if err != nil {
		return nil, err
	}
	rest, err := j.conf.Addressed(j.att, res)
	return append(links, rest...), err
}

// ownIPs returns the result's addresses on the attachment's interface, which the result must contain.
func (j *job) ownIPs(prev *cni.Result) ([]cni.IP, error) {
	own := slices.IndexFunc(prev.Interfaces, func(i cni.Interface) bool {
		return i.Name == j.att.IfName && i.Sandbox != ""
	})
	if own < 0 && len(prev.Interfaces) > 0 {
		return nil, fmt.Errorf("prevResult has no interface %s in a sandbox", j.att.IfName)
	}
	if own >= 0 && j.args.Netns != "" && prev.Interfaces[own].Sandbox != j.args.Netns {
		return nil, fmt.Errorf("prevResult has interface %s in sandbox %s, CNI_NETNS is %s",
			j.att.IfName, prev.Interfaces[own].Sandbox, j.args.Netns)
	}
	var out []cni.IP
	for _, ip := range prev.IPs {
		if ip.Interface == nil || *ip.Interface == own {
			out = append(out, ip)
		}
	}
	return out, nil
}

// status reports whether an ADD would work.
func (r *runner) status(ctx context.Context, args *skel.CmdArgs) error {
	s := newSession(r.env.Root)
	defer s.close()
	j, err := r.begin(s, args, true)
	if err != nil {
		return err
	}
	defer j.end()
	err = j.ipam.status(ctx)
	if c, ok := j.conf.(Readier); ok {
		err = errors.Join(err, c.Ready(j.att))
	}
	return err
}
