package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// Apply creates every object in order. After a failure it removes what this call created, in reverse, and returns the
// failure joined with the errors of the removal.
func (e *Engine) Apply(list Objects) error {
	start := len(e.created)
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
		return errors.Join(err, e.rollback(start))
	}
	return nil
}

// splitDeferred separates the objects that must wait for the kernel: they come last. The sysctls that make the kernel
// announce a link's addresses wait with them. Otherwise the kernel would also announce when the link comes up, and on a
// full bridge a thousand network stacks receive each announcement.
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

// ObjectError is an error about one object of a list.
type ObjectError struct {
	Object Object

	text string
	err  error
}

func (o *ObjectError) Error() string { return o.text }
func (o *ObjectError) Unwrap() error { return o.err }

// about returns an ObjectError.
func about(o Object, err error) error {
	return &ObjectError{o, o.String() + ": " + err.Error(), err}
}

// DiscardUndo keeps what was applied so far: Undo no longer removes it. It also clears the link cache, because others
// may change the links now.
func (e *Engine) DiscardUndo() {
	e.created = nil
	clear(e.index[Host])
	clear(e.index[Container])
	clear(e.seen)
}

// Undo removes, in reverse, everything that this engine's Apply calls created. If a reply of the kernel was lost, it
// returns an error, because the engine does not know what exists. The caller must then remove all objects.
func (e *Engine) Undo() error { return errors.Join(e.rollback(0), e.uncertain) }

func (e *Engine) rollback(start int) error {
	// Drop requests that were not sent, or not answered before the failure.
	e.queue, e.nft, e.chainGroups, e.later = nil, nil, nil, nil
	made := slices.Clone(e.created[start:])
	e.created = e.created[:start]
	err := e.Remove(made)
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// noteCreated records that this engine created an object. A part of a chain group is removed when the group is empty.
func (e *Engine) noteCreated(o Object) {
	if n, ok := o.(*NFT); !o.Shared() || ok && n.ChainGroup != "" {
		e.created = append(e.created, o)
	}
}

// Remove removes the objects that are not shared, in reverse. An object that is already gone is success. Remove
// continues after an error and joins the errors. Objects on a link of the list go away with the link.
func (e *Engine) Remove(list Objects) error {
	owned := linksOwnedBy(list)
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
		if !o.Shared() && !owned.goesWithLink(o) && !gone[o] {
			note(o, o.remove(e))
		}
	}
	errs = append(errs, e.commitRemoval(), e.finish())
	return errors.Join(errs...)
}

// ownedLinks maps the links that a list owns to the objects that create them.
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

// goesWithLink reports whether removing the object's link also removes the object. A host device keeps its attributes
// when it returns to the host, so those are restored.
func (c ownedLinks) goesWithLink(o Object) bool {
	by := c[o.on()]
	_, returns := by.(*HostDevice)
	_, attrs := o.(*LinkAttrs)
	return by != nil && !(returns && attrs)
}

// SplitLinks separates the links of a list, whose removal takes about 20 ms (rcu_barrier), from the other objects that
// need their own removal.
func SplitLinks(list Objects) (links, rest Objects) {
	owned := linksOwnedBy(list)
	for _, o := range list {
		switch {
		case !o.Shared() && len(o.links()) > 0:
			links = append(links, o)
		case !owned.goesWithLink(o):
			rest = append(rest, o)
		}
	}
	return links, rest
}

// Difference is an object that differs from its desired state.
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

// Check returns every object that differs. It changes nothing, and reads each link once.
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
			errs = append(errs, fmt.Errorf("read %s: %w", o, err))
			continue
		}
		if len(what) > 0 {
			out = append(out, Difference{o, what})
		}
	}
	return out, errors.Join(errs...)
}
