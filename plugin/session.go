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
	"github.com/fairlead/fairlead/kernel/netns"
)

// session is one operation on one attachment, by one plugin or by all plugins of a list that run in one process. They
// share handles and the record. All of them are planned before the kernel is changed, unless a plugin asks a question
// that only a changed kernel can answer. So an attach writes one record, one batch per namespace and one nftables
// transaction, whatever the number of plugins.
type session struct {
	ctx    context.Context // bounds every wait
	open   bool
	locked bool          // this session holds the namespace's lock
	path   string        // of the container's namespace
	host   string        // path of the namespace that acts as the host; "": the real host, see WithHost
	netns  *netns.Handle // nil if gone, on DEL
	engine *kernel.Engine
	dir    *attach.Dir

	member int // list position of the plugin that runs, for errors
	failed int // list position of the plugin that failed, or -1

	reservation *attach.Reservation       // of an attachment that has no record yet
	reservedFor kernel.Owner              // the owner of the reservation, also once it has become the record; zero: none
	rec         *openRecord               // the attachment's record
	earlier     []kernel.Owner            // attachments of the list that were finished before rec's, on other interfaces
	jobs        []*job                    // ADDs that are in the record or will be
	pending     []pendingObject           // objects to apply
	applyErr    error                     // why pending objects could not be applied: the operation has failed
	unlocks     []func()                  // release the locks on claims, once the record has them
	links       map[link]*kernel.LinkInfo // links read from the kernel since the last change
	// planned are links that plugins were given before they existed.
	planned  map[link]*kernel.LinkInfo
	removals []*job // DELs that wait for those of other plugins
	forGC    bool   // GC holds the reservation, too: see attach.TakeForGC
	// interrupted is the creation time of the record that takeInterrupted took. The record's remaining parts may look complete.
	interrupted time.Time
	past        *attach.Record // the recorded ADD, without the parts that DEL took
	readErr     error          // why an existing record could not be read
	staged      bool           // see Staged
	checked     *attach.Record // the record that CHECK read
}

// pendingObject is an object that a plugin declared.
type pendingObject struct {
	kernel.Object
	by *job
}

type link struct {
	side kernel.Side
	name string
}

type sessionKey struct{}

// sessionOf returns the session that the context's plugins share, or a new one.
func sessionOf(ctx context.Context, netns, root string) (s *session, shared bool) {
	s, shared = ctx.Value(sessionKey{}).(*session)
	if !shared || s.open && s.path != netns {
		s = newSession(ctx, root)
		s.host = hostOf(ctx)
		return s, false
	}
	return s, true
}

func newSession(ctx context.Context, root string) *session {
	return &session{ctx: ctx, dir: attach.Open(root), failed: -1, staged: isStaged(ctx), links: map[link]*kernel.LinkInfo{}, planned: map[link]*kernel.LinkInfo{}}
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
	s.engine, err = kernel.Open(s.netns, kernel.Options{Context: s.ctx, Alive: s.dir.Alive, SameContainer: s.dir.SameContainer})
	s.open = err == nil
	return err
}

// close may be called twice.
func (s *session) close() {
	s.unlock()
	s.reservation.Free()
	if s.rec != nil {
		s.rec.rec.Unlock()
	}
	s.past.Unlock()
	for _, j := range append(s.jobs, s.removals...) {
		j.end()
	}
	if s.engine != nil {
		s.engine.Close()
	}
	if s.netns != nil {
		s.unlockNetns()
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

// lock locks the namespace for a plugin that takes a free name or number in it.
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

// declare adds objects that a plugin wants.
func (s *session) declare(j *job, list kernel.Objects) {
	for _, o := range list {
		s.pending = append(s.pending, pendingObject{o, j})
	}
	j.objects = append(j.objects, list...)
	j.written = false
}

// flush applies the pending objects. After an error, it returns that error always: a plugin may tolerate that its question
// has no answer, but not that an earlier plugin's objects are missing.
func (s *session) flush() error {
	if s.applyErr == nil {
		s.applyErr = s.apply()
	}
	return s.applyErr
}

// apply writes the record before it changes the kernel.
func (s *session) apply() error {
	if err := s.write(); err != nil {
		return err
	}
	list := make(kernel.Objects, 0, len(s.pending))
	for _, o := range s.pending {
		if !s.staged || o.Side() == kernel.Host || len(kernel.LinkNames(o)) > 0 {
			list = append(list, o.Object)
		}
	}
	waiting := s.pending
	s.pending = nil
	clear(s.links)
	if len(list) == 0 {
		return nil
	}
	err := s.engine.Create(list) // undo reverts it after a failure, once addresses are released that need the links
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
	return s.updatePlanned()
}

// updatePlanned fills planned links with the kernel's values, now that they exist.
func (s *session) updatePlanned() error {
	for at, l := range s.planned {
		now, err := s.engine.Link(at.side, at.name)
		if err != nil {
			return err
		}
		*l = *now
	}
	clear(s.planned)
	return nil
}

// commit applies all pending objects and marks them done in the record. Commit before another process may read the
// result.
func (s *session) commit() error {
	if !s.open {
		return nil // no plugin opened the session
	}
	clear(s.planned) // nobody asks any more
	if err := s.flush(); err != nil {
		return err
	}
	if err := s.recordStored(); err != nil {
		return err
	}
	s.unlock()
	if s.rec != nil && s.rec.stored {
		if err := s.dir.Finish(s.rec.rec, s.rec.base); err != nil {
			return err
		}
	}
	s.engine.DiscardUndo()
	s.unlockNetns()
	for _, j := range s.jobs {
		j.end()
	}
	s.reservation.Free()
	s.rec, s.jobs, s.reservation, s.earlier, s.reservedFor = nil, nil, nil, nil, kernel.Owner{}
	return nil
}

// recordStored writes the record again if the kernel stored a value in another form.
func (s *session) recordStored() error {
	for _, j := range s.jobs {
		if slices.ContainsFunc(j.objects, kernel.HasStored) {
			j.written = false
		}
	}
	return s.write()
}

// undoTime limits the reverting, for example of the address of a plugin that waits for a server.
const undoTime = 30 * time.Second

// isSuperseded reports whether a DEL took the attachment from this session, and another ADD has it. If nobody has it, this
// session reserves it again, so that no ADD begins while it reverts its own.
func (s *session) isSuperseded() bool {
	o, stored := s.reservedFor, s.rec != nil && s.rec.stored
	if o == (kernel.Owner{}) && s.rec != nil { // it adds to the record of earlier plugins
		o = s.rec.rec.Owner()
	}
	switch {
	case o == (kernel.Owner{}), stored && s.dir.Holds(s.rec.rec), !stored && s.reservation != nil && s.reservation.IsCurrent():
		return false
	}
	place, err := s.dir.Reserve(o)
	if err != nil {
		return errors.Is(err, os.ErrExist)
	}
	if r, err := s.dir.Read(o); err == nil {
		place.Free()
		return s.rec == nil || !r.Created.Equal(s.rec.rec.Created)
	}
	s.reservation.Free()
	s.reservation = place
	return false
}

// undo reverts everything that is not committed: addresses, kernel objects, claims and parts of the record.
func (s *session) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	s.unlock() // the claims are freed under the same locks
	s.pending = nil
	if s.isSuperseded() { // names, addresses and ports are the next ADD's
		return s.undoFinished()
	}
	var errs []error
	release := func(overLinks bool) {
		for _, j := range slices.Backward(s.jobs) {
			if j.ipam.added && j.ipam.afterLinks() == overLinks {
				errs = append(errs, j.ipam.del(ctx))
			}
		}
	}
	release(true) // before the links go, over which it may send a release
	undone := true
	if s.engine != nil {
		err := s.engine.Undo()
		undone, errs = err == nil, append(errs, err)
	}
	if undone {
		release(false) // once nothing uses the address: the next owner may get it at once
	}
	for _, j := range s.jobs {
		errs = append(errs, j.release(ctx))
	}
	// The record keeps the remaining objects; the next DEL or ADD removes them.
	err := errors.Join(errs...)
	if err == nil {
		err = errors.Join(s.dropParts(), s.undoFinished())
	}
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}
