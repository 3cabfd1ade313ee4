package attach

import (
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// Moved says where a runtime moved the link of a staged attachment.
type Moved struct {
	Netns string // path
	ID    netns.ID
	Link  string // the link's name there
}

// NoteMove completes the record of a staged attachment whose link is in the container now. change returns the objects of
// a part as they are there.
func (d *Dir) NoteMove(o kernel.Owner, to Moved, change func(kernel.Objects) kernel.Objects) error {
	reservation, err := d.Reserve(o)
	if err != nil {
		return err
	}
	defer reservation.Free()
	r, err := d.TryTake(o)
	if err != nil {
		return err
	}
	defer r.Unlock()
	for i := range r.Parts {
		list, err := r.Parts[i].Objects.Get()
		if err != nil {
			return err
		}
		r.Parts[i].Objects = LazyOf(change(list))
	}
	r.Netns, r.NetnsID, r.NetnsCookie = to.Netns, to.ID.File, to.ID.StoredCookie()
	r.Staged, r.Link = false, to.Link
	return d.replace(r, reservation)
}
