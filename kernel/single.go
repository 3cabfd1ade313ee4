package kernel

import (
	"golang.org/x/sys/unix"
)

// The functions in this file let package reconcile handle objects one by one. They record nothing for Undo.

// WrapObject returns an ObjectError: the object's text, then the error.
func WrapObject(o Object, err error) error { return about(o, err) }

// LinkNames returns the names of the links that an object creates.
func LinkNames(o Object) (names []string) {
	for _, l := range o.links() {
		names = append(names, l.name)
	}
	return names
}

// LinkNameOf returns the name of the link that an object belongs to, or "".
func LinkNameOf(o Object) string { return o.on().name }

// CompareOne compares one object, as Compare does.
func (e *Engine) CompareOne(o Object) (Difference, error) { return e.compareOne(o) }

// EnsureNow creates or updates one object, and clears the link cache.
func (e *Engine) EnsureNow(o Object) error {
	err := o.ensure(e)
	if err == nil {
		err = e.flush()
	}
	e.Reset()
	return err
}

// RestoreNow creates or repairs one object.
func (e *Engine) RestoreNow(o Object) error {
	err := ensureOrRestore(e, o)
	if err == nil {
		err = e.flush()
	}
	e.discardPending()
	return err
}

// Reset drops queued requests and the undo list, and clears the link cache.
func (e *Engine) Reset() {
	e.DiscardUndo()
	e.discardPending()
}

// discardPending drops queued requests and the undo list.
func (e *Engine) discardPending() {
	e.queue, e.later, e.nft, e.leaving = nil, nil, nil, nil
	e.created = nil
}

// RememberIndex caches the index of a link.
func (e *Engine) RememberIndex(s Side, l *LinkInfo) { e.index[s][l.Name] = l.Index }

// ServeReconciler prepares the engine for a reconciler of one side. nftables objects then apply to that side, and the
// socket's buffer holds hundreds of acknowledgements.
func (e *Engine) ServeReconciler(side Side) {
	e.nfSide = side
	if c, err := e.route(side); err == nil {
		_ = unix.SetsockoptInt(c.FD(), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	}
}

// Sent reports whether a port ID belongs to a socket that the engine uses for a side.
func (e *Engine) Sent(side Side, port uint32) bool {
	return e.rt[side] != nil && e.rt[side].PortID() == port || e.nf != nil && e.nf.PortID() == port
}
