package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Repaired is an object that was not as it should be.
type RepairResult struct {
	Difference
	Err error // why it could not be made so; nil: it was, or, without a change, could be
}

// LostError says that a link is gone that only an ADD makes.
type LinkGoneError struct{ Link string }

func (l *LinkGoneError) Error() string {
	return l.Link + " is gone, and only an ADD makes it: the runtime has to DEL and ADD the container again"
}

// drifter is an object that a Repair compares more closely than CHECK, or less:
// what a later plugin, or other software, may change is no difference there.
type driftChecker interface {
	drift(*Engine) ([]string, error)
}

// restorer is an object that stands, and is brought back otherwise than it is made.
type restorer interface {
	restore(*Engine) error
}

// Drift is what a Repair would find of the objects of an attachment, and changes
// nothing.
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
		return nil, fmt.Errorf("look at %s: %w", o, err)
	}
	return what, nil
}

// Repair makes the objects of an attachment that stands so again, in the order in
// which they were made. What it cannot bring back it says, and goes on.
func (e *Engine) Repair(list Objects) (out []RepairResult, _ error) {
	found, err := e.Drift(list)
	if len(found) == 0 {
		return nil, err
	}
	e.DiscardUndo() // what is known of links is as old as the look
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
	nft       []Difference // wait for one transaction
}

// one looks at an object again, as one before it may have brought it back, or
// taken it along.
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

// irreplaceable is a link of an object that is not there, or no more what was
// made, "" if it is, or can be made again. A container's interface takes its
// addresses with it, and what the runtime knows of it.
func (e *Engine) irreplaceable(o Object) string {
	name := ""
	switch o := o.(type) {
	case *Veth:
		if o.IsShared {
			return ""
		}
		name = o.PeerName
		if o.PeerSide == Host {
			name = o.Name
		}
	case *StackedLink:
		name = o.Name
	case *Tap:
		name = o.Name
	case *Dummy:
		name = o.Name
	case *HostDevice:
		name = o.Name
	default:
		return ""
	}
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

// effective are the objects of all plugins of a list less those that a later
// plugin overrules, and with what the kernel made along with them.
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
