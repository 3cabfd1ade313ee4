package plugin

import (
	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/skel"
)

// Adopt is the part of a record that tells of what the reference's plugin of this name
// made, given what its DEL would be given: the objects that go with it, and its host
// ports. Nothing is changed, and little is looked at.
func (p Plugin) Adopt(args *skel.CmdArgs, env Env) (attach.Part, error) {
	r := &runner{p, env}
	s := newSession(env.Root)
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

// adopted leaves of differences those that are of an attachment which the reference made:
// in the container, and not of how a link of ours is made.
func adopted(diffs []kernel.Difference) (out []kernel.Difference) {
	for _, d := range diffs {
		if dest, ok := kernel.DestinationOf(d.Object); ok && dest.Side == kernel.Container {
			out = append(out, d)
		}
	}
	return out
}
