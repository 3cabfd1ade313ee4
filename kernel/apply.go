package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Apply makes every object so, in order. On a failure it undoes what this call
// made, in reverse, and returns the failure joined with the undo's own.
func (e *Engine) Apply(list Objects) error {
	mark := len(e.created)
	now, last := splitDeferred(list)
	err := e.ensureAll(now)
	if err == nil {
		err = e.commit()
	}
	if err == nil {
		err = e.finish()
	}
	if err == nil {
		err = e.ensureAll(last)
	}
	if err != nil {
		return errors.Join(err, e.rollback(mark))
	}
	return nil
}

// parted takes out what has to wait for the kernel: it comes when all else is
// done. With it comes what makes a link announce its addresses: as it comes up
// it would announce them too, and on a full bridge a thousand network stacks hear each.
func splitDeferred(list Objects) (now, last Objects) {
	waits := map[linkName]bool{}
	for _, o := range list {
		if a, ok := o.(*AnnounceAddresses); ok {
			waits[a.on()] = true
		}
	}
	for _, o := range list {
		_, a := o.(*AnnounceAddresses)
		_, c := o.(*WaitForCarrier)
		s, _ := o.(*Sysctl)
		if a || c || s != nil && s.announces() && waits[s.on()] {
			last = append(last, o)
		} else {
			now = append(now, o)
		}
	}
	return now, last
}

func (e *Engine) ensureAll(list Objects) error {
	for _, o := range list {
		if err := o.ensure(e); err != nil {
			return about(o, err)
		}
	}
	return e.flush()
}

// finish does what had to wait for the nftables transaction.
func (e *Engine) finish() error {
	var errs []error
	for _, l := range e.later {
		if err := l.do(); err != nil {
			errs = append(errs, &ObjectError{l.object, err.Error(), err})
		}
	}
	e.later = nil
	return errors.Join(errs...)
}

// ObjectError is a failure that one object of a list met.
type ObjectError struct {
	Object Object

	text string
	err  error
}

func (o *ObjectError) Error() string { return o.text }
func (o *ObjectError) Unwrap() error { return o.err }

// about says on which object something failed.
func about(o Object, err error) error {
	return &ObjectError{o, o.String() + ": " + err.Error(), err}
}

// Keep makes what was applied so far stay: Undo does not remove it any more. What
// is known of links is forgotten, as others may change them now.
func (e *Engine) DiscardUndo() {
	e.created = nil
	clear(e.index[Host])
	clear(e.index[Container])
	clear(e.seen)
}

// Undo removes, in reverse, everything that this engine's Applies made. Where the
// kernel's answer was lost that is not known, and Undo an error: all that was to be
// made is to be removed.
func (e *Engine) Undo() error { return errors.Join(e.rollback(0), e.uncertain) }

func (e *Engine) rollback(mark int) error {
	// What was sent before the failure and not yet answered for.
	e.queue, e.nft, e.chainGroups, e.later = nil, nil, nil, nil
	made := slices.Clone(e.created[mark:])
	e.created = e.created[:mark]
	err := e.Remove(made)
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// made notes that an object was created by this engine. A part of a group goes
// with the group, when that is empty.
func (e *Engine) noteCreated(o Object) {
	if n, ok := o.(*NFT); !o.Shared() || ok && n.ChainGroup != "" {
		e.created = append(e.created, o)
	}
}

// Remove removes the objects that are not shared, in reverse. What is already
// gone is success; it goes on after an error and joins the errors. Objects
// that live on a link of the list go with the link.
func (e *Engine) Remove(list Objects) error {
	carried := linksOwnedBy(list)
	var errs []error
	note := func(o Object, err error) {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove %s: %w", o, err))
		}
	}
	gone := e.removeInOneGroup(list)
	for _, o := range slices.Backward(list) {
		if n, ok := o.(*NFT); ok && n.ChainGroup != "" {
			e.chainGroups = append(e.chainGroups, n)
		}
		if !o.Shared() && !carried.goesWithLink(o) && !gone[o] {
			note(o, o.remove(e))
		}
	}
	errs = append(errs, e.commitRemoval(), e.finish())
	return errors.Join(errs...)
}

// carrying are the links that a list owns, with which others of it go, and the
// objects that make them.
type ownedLinks map[linkName]Object

func linksOwnedBy(list Objects) ownedLinks {
	out := ownedLinks{}
	for _, o := range list {
		if !o.Shared() {
			for _, l := range o.links() {
				out[l] = o
			}
		}
	}
	return out
}

// carry tells whether an object goes with its link. A device that comes home
// keeps its settings, so those are taken back.
func (c ownedLinks) goesWithLink(o Object) bool {
	by := c[o.on()]
	_, home := by.(*HostDevice)
	_, kept := o.(*LinkAttrs)
	return by != nil && !(home && kept)
}

// Split parts the links of a list, whose removal the kernel makes wait
// (rcu_barrier, about 20 ms), from what is to be removed besides.
func SplitLinks(list Objects) (links, rest Objects) {
	carried := linksOwnedBy(list)
	for _, o := range list {
		switch {
		case !o.Shared() && len(o.links()) > 0:
			links = append(links, o)
		case !carried.goesWithLink(o):
			rest = append(rest, o)
		}
	}
	return links, rest
}

// Difference is an object that is not as it should be.
type Difference struct {
	Object Object
	What   []string // "mtu is 1400, want 1500"; "is missing"
}

func (d Difference) String() string {
	s := d.Object.Side().String() + ": " + d.Object.String() + ":"
	for i, w := range d.What {
		if i > 0 {
			s += ","
		}
		s += " " + w
	}
	return s
}

// Check returns every object that differs, and changes nothing. What several
// objects are compared with is looked at once.
func (e *Engine) Check(list Objects) ([]Difference, error) {
	e.checkCache = &checkCache{links: map[linkName]*LinkInfo{}}
	defer func() { e.checkCache = nil }()
	var out []Difference
	var errs []error
	for _, o := range list {
		what, err := o.diff(e)
		switch {
		case errors.Is(err, os.ErrNotExist):
			what = []string{"is missing"}
		case err != nil:
			errs = append(errs, fmt.Errorf("look at %s: %w", o, err))
			continue
		}
		if len(what) > 0 {
			out = append(out, Difference{o, what})
		}
	}
	return out, errors.Join(errs...)
}
