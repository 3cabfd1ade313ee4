package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// removeEarlier handles an earlier ADD of this attachment. It undoes an ADD that was interrupted or whose namespace is
// gone, and returns an error if the attachment still exists or is being added.
//
// A collector that removes a part of an interrupted ADD also locks the record, for a moment, and then it looks like an
// ADD in progress. So removeEarlier waits for the lock. It gives the reservation back meanwhile: an ADD needs it to go
// on, and a DEL deletes it.
func (j *job) removeEarlier(ctx context.Context) error {
	for began := time.Now(); ; time.Sleep(lockedPoll) {
		wait, err := j.tryRemoveEarlier(ctx)
		if time.Since(began) >= wait || ctx.Err() != nil {
			return err
		}
		j.reservation.Free()
		j.reservation, j.rec = nil, nil
	}
}

const (
	addingWait   = 2 * time.Second  // for an ADD in progress
	removingWait = 10 * time.Second // for a DEL or a repair
	lockedPoll   = 5 * time.Millisecond
)

// tryRemoveEarlier is removeEarlier without waiting. If err is about another operation in progress, and this session has
// added nothing yet, wait is how long the caller should try again.
func (j *job) tryRemoveEarlier(ctx context.Context) (wait time.Duration, err error) {
	if !j.Chained {
		switch err := j.reserveAttachment(j.att.Owner); {
		case errors.Is(err, os.ErrExist):
			return 0, cni.Errorf(cni.CodeTryAgainLater, "%w", err)
		case err != nil:
			return 0, err
		}
	}
	b, err := j.loadRecord(j.att.Owner)
	if err != nil {
		return 0, nil // unreadable; cleanup goes on by names and owner tags
	}
	rec := b.rec
	i := rec.Last(j.Name)
	if i >= b.base { // added by this operation
		i = -1
	}
	switch {
	case b.fresh && len(j.jobs) == 0:
		return 0, nil
	case j.Chained && len(j.jobs) == 0 && isGone(rec):
		// No plugin of ours was before this one, which would have replaced the record.
	case j.Chained && (i < 0 || rec.Parts[i].Done):
		return 0, nil // the second plugin of its type in a list
	case j.IfName != "" && len(j.jobs) == 0 && i >= 0 && rec.HasNetns() && attached(rec):
		rec.Parts = slices.Delete(rec.Parts, i, i+1) // an ADD for another interface repeats this one
		b.base, b.dirty = b.base-1, true
		j.reservation.Free() // it is for a new record
		j.reservation, j.reservedFor = nil, kernel.Owner{}
		return 0, nil
	case !j.Chained && (len(j.jobs) > 0 || rec.HasNetns() && attached(rec)):
		if j.createdByList() {
			return 0, cni.Errorf(cni.CodeInvalidNetworkConfig, "an earlier plugin of this list already creates %s: remove one of the two plugins from the list", rec.IfName)
		}
		return 0, cni.Errorf(cni.CodeInvalidNetworkConfig, "container %s is already attached to network %s as %s, with %s: run DEL first",
			rec.ContainerID, rec.Network, rec.IfName, addresses(rec))
	}
	// While a plugin of a list works, the parts of the plugins before it are done.
	if n := slices.IndexFunc(rec.Parts, attach.Part.Adding); n >= 0 {
		return j.unlessAdded(addingWait), cni.Errorf(cni.CodeTryAgainLater, "another ADD of container %s to network %s as %s is in progress (process %d)",
			rec.ContainerID, rec.Network, rec.IfName, rec.Parts[n].PID)
	}
	if err := j.undoEarlier(ctx, b, i); err != nil {
		if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
			wait = j.unlessAdded(removingWait)
		}
		return wait, fmt.Errorf("undo an earlier ADD of this attachment: %w", err)
	}
	return 0, nil
}

// unlessAdded returns a time to wait if this session has added nothing yet.
func (j *job) unlessAdded(wait time.Duration) time.Duration {
	if len(j.jobs) > 0 {
		return 0
	}
	return wait
}

// createdByList reports whether an earlier plugin of this ADD's list has created the interface.
func (j *job) createdByList() bool {
	return len(j.jobs) > 0 || j.base.Prev != nil && j.ownInterface(j.base.Prev) >= 0
}

// isGone reports whether the network namespace of a record is gone. Its path may belong to another container by now.
func isGone(rec *attach.Record) bool { return rec.NetnsID != "" && !rec.HasNetns() }

// undoEarlier removes what an earlier ADD created: for a chained plugin its own part, for the first plugin of a list, or
// if the namespace is gone, everything. An attachment whose namespace was deleted (a restart) keeps its addresses, so
// that it gets them again. An IPAM plugin of other software would reject that, and releases them.
func (j *job) undoEarlier(ctx context.Context, b *openRecord, own int) error {
	rec := b.rec
	taken, err := j.dir.TryTake(rec.Owner())
	defer taken.Unlock()
	if e, ok := errors.AsType[*cni.Error](err); ok && e.Code == cni.CodeTryAgainLater {
		return err // a DEL or a repair holds the record
	}
	gone := isGone(rec)
	if j.Chained && !gone {
		if err := j.undoPart(ctx, j.engine, rec.Parts[own]); err != nil {
			return err
		}
		rec.Parts = slices.Delete(rec.Parts, own, own+1)
		b.base, b.dirty = b.base-1, true
		return nil
	}
	if err := j.removeParts(ctx, rec, gone); err != nil {
		return err
	}
	if attached(rec) && gone && j.ipam.local != nil {
		j.ipam.reuse = true
	} else if err := j.ipam.del(ctx); err != nil {
		return err
	}
	j.rec = nil
	return j.dir.Drop(j.att.Owner)
}

// removeParts removes the objects of a record and frees its host ports. If its namespace is gone, nothing in the new one is
// ours to remove.
func (j *job) removeParts(ctx context.Context, rec *attach.Record, gone bool) error {
	engine := j.engine
	if gone {
		var err error
		if engine, err = j.openHost(); err != nil {
			return err
		}
		defer engine.Close()
	}
	for _, p := range slices.Backward(rec.Parts) {
		if err := j.undoPart(ctx, engine, p); err != nil {
			return err
		}
	}
	return nil
}

// undoPart removes the objects of a part and frees its host ports.
func (j *job) undoPart(ctx context.Context, e *kernel.Engine, p attach.Part) error {
	if err := removePart(e, p); err != nil {
		return err
	}
	return j.dir.Unclaim(ctx, j.att.Owner, p.Ports)
}

func removePart(e *kernel.Engine, p attach.Part) error {
	list, err := p.Objects.Get()
	if err != nil {
		return err
	}
	return e.Remove(list)
}

func attached(rec *attach.Record) bool {
	for _, p := range rec.Parts {
		if !p.Done {
			return false
		}
	}
	return len(rec.Parts) > 0
}

func addresses(rec *attach.Record) string {
	s := ""
	for _, p := range rec.Parts {
		r, err := p.Result.Get()
		if err != nil || r == nil {
			continue
		}
		for _, ip := range r.IPs {
			if s != "" {
				s += ", "
			}
			s += ip.Address.String()
		}
		break
	}
	if s == "" {
		return "no address"
	}
	return s
}

// release frees the claims in the record or in this call's configuration.
func (j *job) release(ctx context.Context) error {
	c, ok := j.conf.(Claimer)
	if !ok {
		return nil
	}
	return j.dir.Unclaim(ctx, j.att.Owner, append(c.Claims(), j.ports...))
}

// forget drops the newest part of each plugin, and removes the record with its last part.
func (s *session) forget(o kernel.Owner, plugins []string, remove func(kernel.Owner) error) error {
	rec, err := s.dir.Read(o)
	if errors.Is(err, os.ErrNotExist) {
		return remove(o)
	}
	if err != nil {
		return err
	}
	for _, name := range plugins {
		if i := rec.Last(name); i >= 0 {
			rec.Parts = slices.Delete(rec.Parts, i, i+1)
		}
	}
	if len(rec.Parts) == 0 {
		return remove(o)
	}
	defer rec.Unlock()
	return s.dir.Write(rec)
}
