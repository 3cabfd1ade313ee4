package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Apply creates every object in order, as Create does. After a failure it removes what this call created, in reverse, and
// returns the failure joined with the errors of the removal.
func (e *Engine) Apply(list Objects) error {
	start := len(e.created)
	if err := e.Create(list); err != nil {
		return errors.Join(err, e.rollback(start))
	}
	return nil
}

// Create creates every object in order. After a failure the caller calls Undo.
//
// It works in phases: links, addresses, routes and so on; one nftables transaction; what had to wait for that; then it
// waits until packets pass through new pairs, and announces their addresses.
func (e *Engine) Create(list Objects) error {
	p := e.phasesOf(list)
	err := e.ensureAll(p[creating])
	if err == nil {
		err = e.commit()
	}
	if err == nil {
		err = e.finish()
	}
	if err == nil {
		err = e.announceAll(p)
	}
	return err
}

func (e *Engine) ensureAll(list Objects) error {
	if err := e.ensureEach(list); err != nil {
		return err
	}
	return e.flush()
}

// ensureEach creates objects, or queues that.
func (e *Engine) ensureEach(list Objects) error {
	for _, o := range list {
		if err := o.ensure(e); err != nil {
			return about(o, err)
		}
	}
	return nil
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

// about returns an ObjectError. An error that is already about an object of an earlier message stays as it is.
func about(o Object, err error) error {
	if _, named := err.(*ObjectError); named {
		return err
	}
	return &ObjectError{o, errorText(o) + ": " + err.Error(), err}
}

// errorText returns an object's text without what may be long.
func errorText(o Object) string {
	if s, ok := o.(interface{ summary() string }); ok {
		return s.summary()
	}
	return o.String()
}

// DiscardUndo keeps what was applied so far: Undo no longer removes it. It also clears the link cache, because others
// may change the links now.
func (e *Engine) DiscardUndo() {
	e.created, e.pairs = nil, nil
	clear(e.index[Host])
	clear(e.index[Container])
	clear(e.seen)
}

// Undo removes, in reverse, everything that this engine's Apply calls created. If a reply of the kernel was lost, it
// returns an error, because the engine does not know what exists. The caller must then remove all objects.
func (e *Engine) Undo() error { return errors.Join(e.rollback(0), e.uncertain) }

func (e *Engine) rollback(start int) error {
	// Drop requests that were not sent, or not answered before the failure.
	e.queue, e.nft, e.leaving, e.chainGroups, e.later, e.pairs = nil, nil, nil, nil, nil, nil
	defer func(ctx context.Context) { e.ctx = ctx }(e.ctx)
	e.ctx = context.WithoutCancel(e.ctx)
	made := slices.Clone(e.created[start:])
	e.created = e.created[:start]
	if err := e.Remove(made); err != nil {
		e.created = append(e.created, made...) // some may exist: a later Undo tries again
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// noteCreated records that this engine created an object. A part of a chain group is removed when the group is empty.
func (e *Engine) noteCreated(o Object) {
	if _, leaves := o.(leaver); !o.Shared() || leaves {
		e.created = append(e.created, o)
	}
}

// leaver is a shared object that is removed when the last attachment that needs it is gone.
type leaver interface{ leave(*Engine) }

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
		if l, ok := o.(leaver); ok {
			l.leave(e)
		}
		if !o.Shared() && !owned.goesWithLink(o) && !gone[o] {
			note(o, o.remove(e))
		}
	}
	errs = append(errs, e.commitRemoval(), e.finish())
	return errors.Join(errs...)
}

// refusesFormer reports whether the kernel does not take a former value back, because what the value depends on has changed
// since: the MTU of a parent, the user of a hardware address, the state of a link. There is nothing to restore then. An
// error that may pass, such as a lack of memory, is none of these.
func refusesFormer(err error) bool {
	return slices.ContainsFunc([]error{
		unix.EINVAL, unix.EACCES, unix.EPERM, unix.EROFS, unix.EOPNOTSUPP, unix.EADDRINUSE, unix.EADDRNOTAVAIL, unix.EEXIST,
		unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTUNREACH,
	}, func(e error) bool { return errors.Is(err, e) })
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

// goesWithLink reports whether removing the object's link also removes the object.
func (c ownedLinks) goesWithLink(o Object) bool {
	by := c[o.on()]
	if by == nil {
		return false
	}
	x, ok := o.(interface{ outlives(link Object) bool })
	return !ok || !x.outlives(by)
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
