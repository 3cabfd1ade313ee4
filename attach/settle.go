package attach

import (
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// Settled says where a runtime moved the link of a staged attachment.
type Settled struct {
	Netns string // path
	ID    netns.ID
	Link  string // the link's name there
}

// Settle completes the record of a staged attachment whose link is in the container now. change returns the objects of
// a part as they are there.
func (d *Dir) Settle(o kernel.Owner, to Settled, change func(kernel.Objects) kernel.Objects) error {
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
		r.Parts[i].Objects = Now(change(list))
	}
	r.Netns, r.NetnsID, r.NetnsCookie = to.Netns, to.ID.File, to.ID.StoredCookie()
	r.Staged, r.Link = false, to.Link
	return d.replace(r, reservation)
}
