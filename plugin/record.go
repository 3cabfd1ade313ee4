package plugin

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// openRecord is the attachment's record while a session adds to it.
type openRecord struct {
	rec    *attach.Record
	base   int  // number of parts that existed before the session
	fresh  bool // the file does not exist yet
	dirty  bool // it differs from the file
	stored bool // this session has written it
}

// loadRecord returns the attachment's record, which is empty if it does not exist yet.
func (s *session) loadRecord(o kernel.Owner) (*openRecord, error) {
	if s.rec != nil && s.rec.rec.Owner() == o {
		return s.rec, nil
	}
	if s.rec != nil { // for example loopback, whose interface lo is an attachment of its own
		before, fresh := s.rec.rec.Owner(), s.rec.base == 0
		if err := s.commit(); err != nil {
			return nil, err
		}
		if fresh {
			s.earlier = append(s.earlier, before)
		}
	}
	rec, err := s.dir.Read(o)
	fresh := errors.Is(err, os.ErrNotExist)
	if fresh {
		rec, err = s.newRecord(o)
	}
	if err != nil {
		return nil, err
	}
	s.rec = &openRecord{rec: rec, base: len(rec.Parts), fresh: fresh}
	return s.rec, nil
}

func (s *session) newRecord(o kernel.Owner) (rec *attach.Record, err error) {
	id := netns.ID{}
	if s.netns != nil {
		id, err = s.engine.NetnsID()
	}
	rec = s.dir.NewIn(o.Network, o.ContainerID, o.IfName, s.path, id)
	rec.Host, rec.Staged = s.host, s.staged
	return rec, err
}

// write stores the record with a part for every plugin that has objects.
func (s *session) write() error {
	if s.rec == nil {
		return nil
	}
	b := s.rec
	rec := b.rec
	rec.Parts = rec.Parts[:b.base]
	for _, j := range s.recorded() {
		b.dirty = b.dirty || !j.written
		j.written = true
		rec.Parts = append(rec.Parts, j.part())
	}
	if !b.dirty {
		return nil
	}
	err := s.store(b)
	if errors.Is(err, os.ErrExist) {
		return errAddInProgress(rec.Owner())
	}
	if err == nil {
		b.fresh, b.dirty, b.stored = false, false, true
	}
	return err
}

// recorded returns the plugins that have a part in the record.
func (s *session) recorded() []*job {
	return slices.DeleteFunc(slices.Clone(s.jobs), func(j *job) bool {
		return j.Chained && len(j.objects) == 0 // no objects, so nothing to record
	})
}

// Record returns an attachment's record, or os.ErrNotExist. The plugins of a list in one process write theirs at its end.
// Until then, Record returns what they will write.
func Record(ctx context.Context, o kernel.Owner) (*attach.Record, error) {
	s, _ := ctx.Value(sessionKey{}).(*session)
	if s == nil || s.rec == nil || s.rec.rec.Owner() != o {
		return attach.Open("").Read(o)
	}
	rec := *s.rec.rec
	rec.Parts = slices.Clone(rec.Parts[:s.rec.base])
	for _, j := range s.recorded() {
		rec.Parts = append(rec.Parts, j.part())
	}
	if len(rec.Parts) == 0 {
		return nil, os.ErrNotExist
	}
	return &rec, nil
}

func (s *session) store(b *openRecord) error {
	if !b.fresh {
		if o := b.rec.Owner(); !s.dir.IsCurrent(b.rec) { // it may be the next ADD's by now
			return cni.Errorf(cni.CodeTryAgainLater, "a DEL has ended this ADD of container %s to network %s as %s", o.ContainerID, o.Network, o.IfName)
		}
		return s.dir.Write(b.rec)
	}
	if err := s.reserveAttachment(b.rec.Owner()); err != nil { // a chained plugin, and no record of the plugins before it
		return err
	}
	return s.dir.Create(b.rec, s.reservation)
}

// reserveAttachment reserves the attachment. Of two concurrent ADDs one holds the reservation until its record exists;
// the other fails before it allocates an address.
func (s *session) reserveAttachment(o kernel.Owner) (err error) {
	if s.reservation != nil && s.reservedFor == o {
		return nil
	}
	s.reservation.Free()
	s.reservedFor = o
	s.reservation, err = s.dir.AwaitReservation(s.ctx, o)
	return err
}

// reserveNow is reserveAttachment without waiting.
func (s *session) reserveNow(o kernel.Owner) (err error) {
	if s.reservation != nil && s.reservedFor == o && s.reservation.IsCurrent() {
		return nil
	}
	s.reservation.Free()
	s.reservedFor = o
	s.reservation, err = s.dir.Reserve(o)
	return err
}

func errAddInProgress(o kernel.Owner) error {
	return cni.Errorf(cni.CodeTryAgainLater, "another ADD of container %s to network %s as %s is in progress", o.ContainerID, o.Network, o.IfName)
}

// undoFinished removes the attachments that this session has finished on other interfaces.
func (s *session) undoFinished() error {
	var errs []error
	for _, o := range slices.Backward(s.earlier) {
		rec, err := s.dir.TryTake(o)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		for _, p := range slices.Backward(rec.Parts) {
			err = errors.Join(err, removePart(s.engine, p))
		}
		if err == nil {
			err = s.dir.Remove(o)
		}
		rec.Unlock()
		errs = append(errs, err)
	}
	s.earlier = nil
	return errors.Join(errs...)
}

// dropParts removes the session's parts from the record, and the record with its last part.
func (s *session) dropParts() error {
	b := s.rec
	if b == nil || !b.stored {
		return nil
	}
	b.rec.Parts = b.rec.Parts[:b.base]
	defer b.rec.Unlock()
	switch {
	case b.base == 0:
		return s.dir.Drop(b.rec.Owner()) // another ADD may have reserved the attachment by now
	case !s.dir.IsCurrent(b.rec): // a DEL removed it
		return nil
	}
	return s.dir.Write(b.rec)
}
