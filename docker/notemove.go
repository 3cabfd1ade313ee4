package docker

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	"github.com/fairlead/fairlead/repair"
)

// Waits for dockerd to move a link: Docker starts a container within this time, or not at all.
const (
	firstLook  = 5 * time.Millisecond
	longestGap = 500 * time.Millisecond
	moveLimit  = 5 * time.Minute
)

// noteMoveSoon waits until dockerd has moved the link of an endpoint, and completes its record.
func (d *Driver) noteMoveSoon(id string) {
	ctx, cancel := context.WithTimeout(d.ctx, moveLimit)
	defer cancel()
	for gap := firstLook; ; gap = min(2*gap, longestGap) {
		done := false
		if err := d.host.Do(func() error { done = d.tryNoteMove(id); return nil }); err != nil {
			d.log("endpoint %s: %v", id, err)
		}
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
	}
}

// tryNoteMove reports whether there is nothing left to do.
func (d *Driver) tryNoteMove(id string) bool {
	defer d.locks.lock(id)()
	e, err := d.endpoints.read(id)
	if err != nil {
		return true
	}
	n, err := d.networks.read(e.NetworkID)
	return err != nil || d.noteMove(e, n)
}

// noteMove completes the record of an endpoint if dockerd has moved and configured the link. It reports whether there is
// nothing left to do.
func (d *Driver) noteMove(e *endpoint, n *network) (done bool) {
	record, err := d.records.Read(e.owner(n))
	if err != nil || !record.Staged {
		return true
	}
	if e.Sandbox == "" {
		return false
	}
	err = repair.InHost(record, func() error { return d.noteMoveIn(e, record) })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.log("endpoint %s: complete its record: %v", e.ID, err)
	}
	return err == nil
}

func (d *Driver) noteMoveIn(e *endpoint, record *attach.Record) error {
	ns, err := netns.Open(e.Sandbox)
	if err != nil {
		return err
	}
	defer ns.Close()
	eng, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		return err
	}
	defer eng.Close()
	list, err := record.Objects()
	if err != nil {
		return err
	}
	in, err := moved(eng, list)
	if err != nil {
		return err
	}
	id, err := ns.ID()
	if err != nil {
		return err
	}
	change := func(l kernel.Objects) kernel.Objects { return l.Moved(record.IfName, in.Name) }
	// dockerd sets no sysctls. Without accept_ra=0, a neighbour could become the container's router.
	if _, err = eng.Repair(change(list)); err != nil {
		return err
	}
	return d.records.NoteMove(record.Owner(), attach.Moved{Netns: e.Sandbox, ID: id, Link: in.Name}, change)
}

// moved returns the container's link once it is up in the container: dockerd sets it up last. Until then it returns
// os.ErrNotExist.
func moved(eng *kernel.Engine, list kernel.Objects) (*kernel.LinkInfo, error) {
	inside, err := eng.Links(kernel.Container)
	if err != nil {
		return nil, err
	}
	for _, l := range inside {
		if l.Up && (isStacked(l, list) || isPeer(eng, l, list)) {
			return l, nil
		}
	}
	return nil, os.ErrNotExist
}

func isStacked(l *kernel.LinkInfo, list kernel.Objects) bool {
	for _, s := range kernel.Of[*kernel.StackedLink](list) {
		if s.OwnerTag == l.Alias {
			return true
		}
	}
	return false
}

func isPeer(eng *kernel.Engine, l *kernel.LinkInfo, list kernel.Objects) bool {
	out, err := eng.OtherEnd(l)
	if err != nil {
		return false
	}
	for _, v := range kernel.Of[*kernel.Veth](list) {
		if v.Name == out.Name && v.OwnerTag == out.Alias {
			return true
		}
	}
	return false
}

// resume completes the records of endpoints that were joined before the driver started.
func (d *Driver) resume() {
	for _, id := range d.endpoints.ids() {
		go d.noteMoveSoon(id)
	}
}
