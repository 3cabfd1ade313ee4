package plugin

import (
	"context"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// PlanMarked plans an ADD with facts, as State does, and calls mark before and after each call of a function of the
// plugin. It returns the number of calls.
func (p Plugin) PlanMarked(args *skel.CmdArgs, f Facts, r *cni.Result, mark func(begin bool)) (calls int, err error) {
	c, a, err := p.parse(args, f)
	if err != nil {
		return 0, err
	}
	for _, plan := range []planning{c.Links, c.Addressed} {
		_, err := settle(a, r, func(a *Attachment, r *cni.Result) (kernel.Objects, error) {
			calls++
			mark(true)
			defer mark(false)
			return plan(a, r)
		})
		if err != nil {
			return calls, err
		}
	}
	return calls, nil
}

// GCStartingNow returns the context of a collection whose list of valid attachments was made now.
func GCStartingNow(ctx context.Context) context.Context {
	ctx, _ = withGCStart(ctx, strconv.FormatInt(time.Now().UnixNano(), 10))
	return ctx
}

// GCSteps are the first step of a GC and those that remove objects, so that a test can run an ADD between them.
type GCSteps struct{ Keep, Records, Tagged func() error }

// GCInSteps begins a GC. The caller calls end.
func (p Plugin) GCInSteps(ctx context.Context, args *skel.CmdArgs, env Env) (steps GCSteps, end func(), err error) {
	ctx, start := GCStart(ctx)
	r := &runner{p, env}
	s := newSession(ctx, env.Root)
	j, err := r.begin(s, args, false)
	if err != nil {
		s.close()
		return steps, nil, err
	}
	j.start = start
	return GCSteps{j.keepInProgress, func() error { return j.gcRecords(ctx) }, func() error { return j.gcTagged(ctx) }}, func() { j.end(); s.close() }, nil
}
