package plugin

import (
	"errors"
	"os"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// book is the attachment's record while a session adds to it.
type book struct {
	rec    *attach.Record
	base   int  // parts that were there before
	fresh  bool // there is no file yet
	dirty  bool // it is not as it is in the file
	stored bool // this session has written it
}

// record is the attachment's record; one that does not exist yet is empty.
func (s *session) record(o kernel.Owner) (*book, error) {
	if s.book != nil && s.book.rec.Owner() == o {
		return s.book, nil
	}
	if s.book != nil { // lo, say, whose attachment is one of its own
		if err := s.commit(); err != nil {
			return nil, err
		}
	}
	rec, err := s.dir.Read(o)
	fresh := errors.Is(err, os.ErrNotExist)
	if fresh {
		rec, err = s.dir.New(o.Network, o.ContainerID, o.IfName, s.path), nil
		rec.Host = s.host
	}
	if err != nil {
		return nil, err
	}
	s.book = &book{rec: rec, base: len(rec.Parts), fresh: fresh}
	return s.book, nil
}

// write stores the record with a part for every plugin that has something.
func (s *session) write() error {
	if s.book == nil {
		return nil
	}
	b := s.book
	rec := b.rec
	rec.Parts = rec.Parts[:b.base]
	for _, j := range s.jobs {
		if j.Chained && len(j.objects) == 0 {
			continue // nothing to do, nothing to remember
		}
		b.dirty = b.dirty || !j.written
		j.written = true
		rec.Parts = append(rec.Parts, j.part())
	}
	if !b.dirty {
		return nil
	}
	err := s.store(b)
	if errors.Is(err, os.ErrExist) {
		return another(rec.Owner())
	}
	if err == nil {
		b.fresh, b.dirty, b.stored = false, false, true
	}
	return err
}

func (s *session) store(b *book) error {
	if !b.fresh {
		return s.dir.Write(b.rec)
	}
	if err := s.takePlace(b.rec.Owner()); err != nil { // of a chained plugin without a record of those before it
		return err
	}
	return s.dir.Create(b.rec, s.place)
}

// takePlace reserves the attachment: of two ADDs at once one has it until its
// record stands, and the other has no address before it finds out.
func (s *session) takePlace(o kernel.Owner) (err error) {
	if s.place != nil && s.placeOf == o {
		return nil
	}
	s.place.Free()
	s.placeOf = o
	s.place, err = s.dir.AwaitPlace(o)
	return err
}

func another(o kernel.Owner) error {
	return cni.Errorf(cni.CodeTryAgainLater, "another ADD of container %s to network %s as %s is at work", o.ContainerID, o.Network, o.IfName)
}

// strike takes the session's parts out of the record, which goes with its last.
func (s *session) strike() error {
	b := s.book
	if b == nil || !b.stored {
		return nil
	}
	b.rec.Parts = b.rec.Parts[:b.base]
	defer b.rec.Unlock()
	if b.base == 0 {
		return s.dir.Drop(b.rec.Owner()) // another ADD may have the place by now
	}
	return s.dir.Write(b.rec)
}
