package plugin

import (
	"context"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// Adopt returns the record part for the objects and host ports that the reference plugin of the same name created. It
// takes the arguments that the reference plugin's DEL would get. It changes nothing and reads little from the kernel.
func (p Plugin) Adopt(args *skel.CmdArgs, env Env) (attach.Part, error) {
	r := &runner{p, env}
	s := newSession(context.Background(), env.Root)
	defer s.close()
	j, err := r.begin(s, args, false)
	if err != nil {
		return attach.Part{}, err
	}
	defer j.end()
	j.objects, j.result = j.unrecorded(), j.base.Prev
	part := j.part()
	part.PID, part.Done = 0, true
	return part, nil
}

// adopted keeps the differences that matter for an attachment which the reference plugin created: those in the
// container that do not depend on how our plugin creates a link.
func adopted(diffs []kernel.Difference) (out []kernel.Difference) {
	for _, d := range diffs {
		if dest, ok := kernel.DestinationOf(d.Object); ok && dest.Side == kernel.Container {
			out = append(out, d)
		}
	}
	return out
}
