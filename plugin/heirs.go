package plugin

import (
	"github.com/fairlead/fairlead/kernel"
)

// bequeath has the host ports of what leaves go over to other networks of the container
// that were asked for them: connections to come are theirs. They stand still until
// release. One that is being added or removed itself is left out: a repair makes up for
// the former.
func (s *session) bequeath(jobs []*job) (release func()) {
	var held []func()
	var wanted kernel.Objects
	for _, j := range jobs {
		for _, o := range s.dir.Sharing(j.att.Owner, j.ports) {
			rec, free, err := s.dir.Hold(o)
			if err != nil {
				continue
			}
			held = append(held, free)
			if !rec.Living() {
				continue
			}
			for _, p := range rec.Parts {
				if list, err := p.Objects.Get(); err == nil {
					wanted = append(wanted, list...)
				}
			}
		}
	}
	s.engine.HandOver(wanted)
	return func() {
		for _, free := range held {
			free()
		}
	}
}
