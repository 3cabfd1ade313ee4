package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

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

// driftChecker is an object that Repair compares otherwise than CHECK. A change by a later plugin or by other software
// does not count as drift.
type driftChecker interface {
	drift(*Engine) ([]string, error)
}

// restorer is an object that exists, and that is restored otherwise than it is created.
type restorer interface {
	restore(*Engine) error
}

// Drift returns what Repair would restore. It changes nothing.
func (e *Engine) Drift(list Objects) ([]Difference, error) {
	e.checkCache = &checkCache{links: map[linkName]*LinkInfo{}}
	defer func() { e.checkCache = nil }()
	return e.driftOf(effectiveObjects(list))
}

func (e *Engine) driftOf(list Objects) (out []Difference, _ error) {
	var errs []error
	for _, o := range list {
		what, err := e.driftOne(o)
		if err != nil {
			errs = append(errs, err)
		}
		if len(what) > 0 {
			out = append(out, Difference{o, what})
		}
	}
	return out, errors.Join(errs...)
}

func (e *Engine) driftOne(o Object) (what []string, err error) {
	if d, ok := o.(driftChecker); ok {
		what, err = d.drift(e)
	} else {
		what, err = o.diff(e)
	}
	if errors.Is(err, os.ErrNotExist) {
		return []string{"is missing"}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o, err)
	}
	return what, nil
}

// Repair restores the objects of an existing attachment in the order of their creation. It continues after an error and
// reports what it could not restore.
func (e *Engine) Repair(list Objects) (out []RepairResult, _ error) {
	found, err := e.Drift(list)
	if len(found) == 0 {
		return nil, err
	}
	e.DiscardUndo() // the link cache is as old as the comparison
	r := &repair{engine: e, lostLinks: map[linkName]bool{}}
	list = effectiveObjects(list)
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
	what, err := r.engine.driftOne(o)
	if err != nil || len(what) == 0 {
		return err
	}
	d := Difference{o, what}
	switch o.(type) {
	case *NFT, *Element:
		r.nft = append(r.nft, d)
		return nil
	}
	r.out = append(r.out, RepairResult{d, r.restore(o)})
	return nil
}

func (r *repair) restore(o Object) error {
	e := r.engine
	if link := e.irreplaceable(o); link != "" {
		for _, l := range o.links() {
			r.lostLinks[l] = true
		}
		return &LinkGoneError{link}
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

// irreplaceable returns the name of a link that is missing or is another link, and that cannot be created again. It
// returns "" for other objects. The addresses of a container's interface, and what the runtime knows of it, are gone
// with the interface.
func (e *Engine) irreplaceable(o Object) string {
	x, ok := o.(interface{ interfaceName() string })
	if !ok || x.interfaceName() == "" {
		return ""
	}
	name := x.interfaceName()
	d, err := o.diff(e)
	if err != nil {
		return name
	}
	for _, w := range d {
		if !strings.HasPrefix(w, "alias ") {
			return name
		}
	}
	return ""
}

// effectiveObjects returns the objects of all plugins of a list that no later plugin overrides, and the objects that
// the kernel created along with them.
func effectiveObjects(list Objects) (out Objects) {
	var waiting Objects // what a link has once it is up
	for i, o := range list {
		if overriddenBy(o, list[i+1:]) {
			continue
		}
		out = append(out, o)
		switch o := o.(type) {
		case *Veth:
			if o.Master != "" {
				out = append(out, &bridgePort{Link: o.Name, Master: o.Master})
			}
		case *Addr:
			c := connectedRouteOf(o)
			if o.NoRoute || o.Prefix.IsSingleIP() || overriddenBy(&c.Route, list[i+1:]) {
				break
			}
			if o.IsShared {
				out = append(out, c)
			} else {
				waiting = append(waiting, c)
			}
		case *Up:
			out, waiting = append(out, waiting...), nil
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(append(out, waiting...), func(o Object) bool {
		name := o.Side().String() + " " + o.String()
		again := seen[name]
		seen[name] = true
		return again
	})
}

func overriddenBy(o Object, later Objects) bool {
	for _, l := range later {
		switch o := o.(type) {
		case *Sysctl:
			if s, ok := l.(*Sysctl); ok && s.In == o.In && s.Key == o.Key {
				return true
			}
		case *Route:
			if n, ok := l.(*AbsentRoute); ok && sameRoute(&n.Route, o) {
				return true
			}
		case *LinkAttrs:
			if t, ok := l.(*LinkAttrs); ok && t.Link == o.Link {
				return true
			}
		}
	}
	return false
}

func sameRoute(a, b *Route) bool {
	return a.In == b.In && a.Link == b.Link && a.Dst.Masked() == b.Dst.Masked() && a.Via == b.Via && a.RoutingTable() == b.RoutingTable()
}
