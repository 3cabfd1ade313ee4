package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// session is one operation on one attachment: of one plugin, or of those of a
// list that run in one process. They share handles and record, and are planned
// one after the other before the kernel is changed, as far as none of them has to
// ask what only a change can answer. So an attach is one record, one batch a
// namespace and one nftables transaction, whatever the number of plugins.
type session struct {
	open   bool
	locked bool          // the namespace is, by this session
	path   string        // of the container's namespace
	host   string        // path of the namespace that is the host; "": the real one, see Within
	netns  *netns.Handle // nil when gone, on DEL
	engine *kernel.Engine
	dir    *attach.Dir

	member int // position in the list of the plugin that runs, for errors
	failed int // position of the one whose part failed, or -1

	place   *attach.Reservation       // of an attachment that has no record yet
	placeOf kernel.Owner              // whose it is
	book    *book                     // the attachment's record
	jobs    []*job                    // whose ADD is in the book, or waits to be
	stated  []stated                  // objects that wait to be made
	unlocks []func()                  // of claims, once the record tells of them
	links   map[link]*kernel.LinkInfo // as they were found since the last change
	// foreseen are links that plugins were told of before they were there.
	foreseen map[link]*kernel.LinkInfo
	leaving  []*job         // whose DEL waits for the others'
	seized   bool           // by a collector, which has the place too: see attach.Seize
	past     *attach.Record // what an ADD noted, without what DEL took of it already
	unread   error          // why past could not be read, though it is there
}

// stated is an object of a plugin.
type stated struct {
	kernel.Object
	by *job
}

type link struct {
	side kernel.Side
	name string
}

type sessionKey struct{}

// sessionOf is the session that a context's plugins share, or one of its own.
func sessionOf(ctx context.Context, netns, root string) (s *session, shared bool) {
	s, shared = ctx.Value(sessionKey{}).(*session)
	if !shared || s.open && s.path != netns {
		s = newSession(root)
		s.host = hostOf(ctx)
		return s, false
	}
	return s, true
}

func newSession(root string) *session {
	return &session{dir: attach.Open(root), failed: -1, links: map[link]*kernel.LinkInfo{}, foreseen: map[link]*kernel.LinkInfo{}}
}

// begin opens the namespaces, once. See runner.begin for strict.
func (s *session) begin(nsPath string, strict bool) (err error) {
	if s.open {
		return nil
	}
	if err := s.dir.Err(); err != nil {
		return err
	}
	s.path = nsPath
	if nsPath != "" {
		s.netns, err = netns.Open(nsPath)
		if err != nil && (strict || !errors.Is(err, os.ErrNotExist)) {
			return cni.Errorf(cni.CodeInvalidEnvironment, "CNI_NETNS: %w", err)
		}
	}
	s.engine, err = kernel.Open(s.netns, kernel.Options{Alive: s.dir.Alive})
	s.open = err == nil
	return err
}

// close may be called twice.
func (s *session) close() {
	s.unlock()
	s.place.Free()
	if s.book != nil {
		s.book.rec.Unlock()
	}
	s.past.Unlock()
	for _, j := range append(s.jobs, s.leaving...) {
		j.end()
	}
	if s.engine != nil {
		s.engine.Close()
	}
	if s.netns != nil {
		s.netns.Close()
	}
	s.engine, s.netns = nil, nil
}

// unlockNetns lets other processes work in the namespace.
func (s *session) unlockNetns() {
	if s.locked {
		s.netns.Unlock()
	}
	s.locked = false
}

// lock is for a plugin that takes what is free in the namespace.
func (s *session) lock(ctx context.Context) error {
	if s.locked {
		return nil
	}
	err := s.netns.Lock(ctx)
	s.locked = err == nil
	return err
}

func (s *session) unlock() {
	for _, u := range s.unlocks {
		u()
	}
	s.unlocks = nil
}

// state notes objects that a plugin wants.
func (s *session) state(j *job, list kernel.Objects) {
	for _, o := range list {
		s.stated = append(s.stated, stated{o, j})
	}
	j.objects = append(j.objects, list...)
	j.written = false
}

// flush makes what was stated so far: first the record says so, then the
// kernel is changed.
func (s *session) flush() error {
	if err := s.write(); err != nil {
		return err
	}
	list := make(kernel.Objects, len(s.stated))
	for i, o := range s.stated {
		list[i] = o.Object
	}
	waiting := s.stated
	s.stated = nil
	clear(s.links)
	if len(list) == 0 {
		return nil
	}
	err := s.engine.Apply(list)
	if o, ok := errors.AsType[*kernel.ObjectError](err); ok {
		for _, w := range waiting {
			if w.Object == o.Object && s.failed < 0 {
				s.failed = w.by.member
			}
		}
	}
	if err != nil {
		return err
	}
	return s.cameTrue()
}

// cameTrue replaces what plugins were told of links by what these are now.
func (s *session) cameTrue() error {
	for at, l := range s.foreseen {
		now, err := s.engine.Link(at.side, at.name)
		if err != nil {
			return err
		}
		*l = *now
	}
	clear(s.foreseen)
	return nil
}

// commit makes everything stated, and says in the record that it is done. What
// another process may look at must be committed.
func (s *session) commit() error {
	if !s.open {
		return nil // none of the plugins came here
	}
	clear(s.foreseen) // nobody asks any more
	if err := s.flush(); err != nil {
		return err
	}
	s.unlock()
	if s.book != nil && s.book.stored {
		if err := s.dir.Finish(s.book.rec, s.book.base); err != nil {
			return err
		}
	}
	s.engine.DiscardUndo()
	s.unlockNetns()
	for _, j := range s.jobs {
		j.end()
	}
	s.place.Free()
	s.book, s.jobs, s.place = nil, nil, nil
	return nil
}

// undo takes back what was not committed: addresses, the kernel's objects, the
// claims, the record's parts.
func (s *session) undo(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.unlock() // the claims are freed under the same locks
	s.stated = nil
	var errs []error
	release := func(overLinks bool) {
		for _, j := range slices.Backward(s.jobs) {
			if j.ipam.added && j.ipam.afterLinks() == overLinks {
				errs = append(errs, j.ipam.del(ctx))
			}
		}
	}
	release(true) // before the links, over which it may have to say so
	if s.engine != nil {
		errs = append(errs, s.engine.Undo())
	}
	release(false) // when nothing of ours has the address any more: the next may get it at once
	for _, j := range s.jobs {
		errs = append(errs, j.release())
	}
	// What is left is in the record: the next DEL, or ADD, takes it.
	err := errors.Join(errs...)
	if err == nil {
		err = s.strike()
	}
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}
