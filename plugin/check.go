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
	s.engine.OnlyCompare()
	prev, err := j.previous()
	if err != nil && j.IfName != "" {
		prev, err = &cni.Result{}, nil
	}
	if err != nil {
		return cni.Errorf(cni.CodeInvalidNetworkConfig, "CHECK needs a prevResult: pass the result of the ADD")
	}
	diffs, err := j.compare(prev)
	return errors.Join(j.ipam.check(ctx), err, differences(diffs))
}

// compare compares the attachment's objects with the kernel: the objects in its record, if it has one. The objects for
// the configuration and prevResult are compared, too, if these are not the ones that the record is for.
func (j *job) compare(prev *cni.Result) ([]kernel.Difference, error) {
	rec, err := j.checkedRecord(j.att.Owner)
	if err != nil || rec.Adopted {
		return j.compareUnrecorded(prev, err == nil)
	}
	own, later, same, err := rec.Expected(j.Name, j.confHash())
	if err != nil { // another version of Fairlead wrote it
		return j.compareUnrecorded(prev, false)
	}
	later = append(later, rec.ChangedByOthers(prev)...)
	if same && rec.HasResult(prev) {
		return j.engine.Compare(own, later...)
	}
	now, err := j.expectedObjects(prev)
	if err != nil {
		return nil, err
	}
	recorded := map[string]bool{}
	for _, o := range own {
		recorded[o.Side().String()+o.String()] = true
	}
	now = slices.DeleteFunc(now, func(o kernel.Object) bool { return recorded[o.Side().String()+o.String()] })
	return j.engine.Compare(append(own, now...), later...)
}

// checkedRecord returns the record that the CHECKs of a list compare with.
func (s *session) checkedRecord(o kernel.Owner) (*attach.Record, error) {
	if s.checked != nil && s.checked.Owner() == o {
		return s.checked, nil
	}
	rec, err := s.dir.Read(o)
	if err == nil {
		s.checked = rec
	}
	return rec, err
}

// compareUnrecorded compares the objects for the configuration and prevResult. The reference plugins may have created
// the attachment: then what depends on how a plugin creates a link is not compared.
func (j *job) compareUnrecorded(prev *cni.Result, byReference bool) ([]kernel.Difference, error) {
	list, err := j.expectedObjects(prev)
	if err != nil {
		return nil, err
	}
	diffs, err := j.engine.Compare(list)
	if byReference {
		diffs = adopted(diffs)
	}
	return diffs, err
}

func differences(diffs []kernel.Difference) error {
	if len(diffs) == 0 {
		return nil
	}
	lines := make([]string, len(diffs))
	for i, d := range diffs {
		lines[i] = d.String()
	}
	what := fmt.Sprintf("%d objects of the attachment differ", len(diffs))
	if len(diffs) == 1 {
		what = "1 object of the attachment differs"
	}
	return cni.Errorf(cni.CodeGeneric, "%s from its configuration", what).
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
	links, err := settle(j.att, res, j.conf.Links)
	if err != nil {
		return nil, err
	}
	rest, err := settle(j.att, res, j.conf.Addressed)
	return append(links, rest...), err
}

// ownIPs returns the result's addresses on the attachment's interface, which the result must contain.
func (j *job) ownIPs(prev *cni.Result) ([]cni.IP, error) {
	own := j.ownInterface(prev)
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
	s := newSession(ctx, r.env.Root)
	defer s.close()
	j, err := r.begin(s, args, true)
	if err != nil {
		return err
	}
	defer j.end()
	err = j.ipam.status(ctx)
	if c, ok := j.conf.(Readier); ok {
		_, err2 := settle(j.att, &cni.Result{}, func(a *Attachment, _ *cni.Result) (kernel.Objects, error) { return nil, c.Ready(ctx, a) })
		err = errors.Join(err, err2)
	}
	return err
}
