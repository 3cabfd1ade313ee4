package plugin

import (
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
