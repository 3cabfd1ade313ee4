package plugin

import (
	"github.com/fairlead/fairlead/kernel"
)

// handOverPorts gives the host ports of removed attachments to the container's other networks that asked for the same
// ports, so that new connections reach those. The other attachments stay locked until release. It skips an attachment
// that is being added or removed; a repair fixes the former.
func (s *session) handOverPorts(jobs []*job) (release func()) {
	var held []func()
	var wanted kernel.Objects
	for _, j := range jobs {
		for _, o := range s.dir.Sharing(j.att.Owner, j.ports) {
			rec, free, err := s.dir.Hold(o)
			if err != nil {
				continue
			}
			held = append(held, free)
			if !rec.MayLive() {
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
