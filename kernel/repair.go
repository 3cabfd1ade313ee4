package kernel

import "errors"

// RepairResult is an object that differed from its desired state.
type RepairResult struct {
	Difference
	Err error // why it could not be restored; nil: it was
}

// LinkGoneError reports that a link is gone which only an ADD creates.
type LinkGoneError struct{ Link string }

func (l *LinkGoneError) Error() string {
	return l.Link + " is gone, and only an ADD makes it: the runtime has to DEL and ADD the container again"
}

// restorer is an object that, if it exists, is restored otherwise than it is created.
type restorer interface {
	restore(*Engine) error
}

// Repair restores the objects of an existing attachment in the order of their creation. It continues after an error and
// reports what it could not restore.
//
// later are as for Compare.
func (e *Engine) Repair(list Objects, later ...Object) (out []RepairResult, _ error) {
	found, err := e.Compare(list, later...)
	if len(found) == 0 {
		return nil, err
	}
	e.DiscardUndo() // the link cache is as old as the comparison
	r := &repair{engine: e, lostLinks: map[linkName]bool{}}
	list = expected(list, later)
	for _, o := range list {
		if err2 := r.object(o); err2 != nil {
			err = errors.Join(err, err2)
		}
	}
	r.rules(list)
	e.DiscardUndo()
	return r.out, err
}

type repair struct {
	engine    *Engine
	lostLinks map[linkName]bool
	out       []RepairResult
	nft       []Difference // nftables objects, for one transaction
}

// object restores one object. It compares the object again first, because restoring an earlier one may have restored or
// removed it.
func (r *repair) object(o Object) error {
	if r.lostLinks[o.on()] {
		return nil
	}
	d, err := r.engine.compareOne(o)
	if err != nil || len(d.What) == 0 {
		return err
	}
	if _, ok := o.(inRuleset); ok {
		r.nft = append(r.nft, d)
		return nil
	}
	r.out = append(r.out, RepairResult{d, r.restore(d)})
	return nil
}

// restore restores one object. The addresses of a container's interface, and what the runtime knows of it, are gone with
// the interface.
func (r *repair) restore(d Difference) error {
	e, o := r.engine, d.Object
	if name := interfaceOf(o); d.Gone && name != "" {
		for _, l := range o.links() {
			r.lostLinks[l] = true
		}
		return &LinkGoneError{name}
	}
	err := ensureOrRestore(e, o)
	if err == nil {
		err = e.flush()
	}
	err = errors.Join(err, e.finish())
	e.queue, e.later = nil, nil
	return err
}

func ensureOrRestore(e *Engine, o Object) error {
	if r, ok := o.(restorer); ok {
		return r.restore(e)
	}
	return o.ensure(e)
}
