package kernel

import (
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Difference is an object that differs from its desired state.
type Difference struct {
	Object Object
	What   []string // "mtu is 1400, want 1500"; "is missing"
	Gone   bool     // a container's interface is missing, or is another link: only an ADD creates it again

	missing bool
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

// Compare returns every object of a list that differs from the kernel's state. It changes nothing. CHECK, repair and
// doctor all use it.
//
// later are the objects of the plugins after those of the list. Compare ignores what these, or later objects of the list
// itself, change.
func (e *Engine) Compare(list Objects, later ...Object) ([]Difference, error) {
	if e.snapshot == nil {
		e.snapshot = &snapshot{map[linkName]*LinkInfo{}, map[any]any{}, map[nftQuery]netlink.Response{}}
		clear(e.index[Host])
		clear(e.index[Container])
	}
	if !e.onlyCompares {
		defer func() { e.snapshot = nil }()
	}
	var out []Difference
	var errs []error
	lost := map[linkName]bool{}
	want := expected(list, later)
	e.readLinks(want)
	e.readRulesets(want)
	for _, o := range want {
		if lost[o.on()] {
			continue // it is gone with its link
		}
		d, err := e.compareOne(o)
		if err != nil {
			errs = append(errs, err)
		}
		if len(d.What) == 0 {
			continue
		}
		out = append(out, d)
		if d.Gone || d.missing {
			for _, l := range o.links() {
				lost[l] = true
			}
		}
	}
	return out, errors.Join(errs...)
}

// OnlyCompare lets all following Compares use what the first ones read. The caller changes nothing until it closes the
// engine.
func (e *Engine) OnlyCompare() { e.onlyCompares = true }

func (e *Engine) compareOne(o Object) (d Difference, err error) {
	d.Object = o
	d.What, err = o.diff(e)
	_, gone := errors.AsType[*goneError](err)
	switch {
	case gone:
		d.What, d.Gone = []string{err.Error()}, true
	case errors.Is(err, os.ErrNotExist):
		d.What, d.Gone, d.missing = []string{"is missing"}, interfaceOf(o) != "", true
	case err != nil:
		return d, &ObjectError{o, "read " + errorText(o) + ": " + err.Error(), err}
	}
	return d, nil
}

// goneError is diff's error for a container's interface that is another link than ADD created.
type goneError struct{ what string }

func (g *goneError) Error() string { return g.what }

// interfaceOf returns the name of the container's interface that an object creates, or "".
func interfaceOf(o Object) string {
	if x, ok := o.(interface{ interfaceName() string }); ok {
		return x.interfaceName()
	}
	return ""
}

// unequal returns a difference if two values differ.
func unequal[T comparable](what string, have, want T) []string {
	if have == want {
		return nil
	}
	return []string{fmt.Sprintf("%s is %v, want %v", what, have, want)}
}

// snapshot holds what one Compare has read, so that it reads each link and each list once.
type snapshot struct {
	links map[linkName]*LinkInfo
	lists map[any]any // by a key that says what was listed
	nft   map[nftQuery]netlink.Response
}

// listKey is the key of a list of one side and one family: of routes, those of a table and a protocol.
type listKey struct {
	what     string
	side     Side
	family   byte
	table    int
	protocol byte // 0: all
}

// readOnce returns the result of read. During a Compare it reads only the first time.
func readOnce[T any](e *Engine, key any, read func() (T, error)) (T, error) {
	if e.snapshot == nil {
		return read()
	}
	if v, ok := e.snapshot.lists[key].(T); ok {
		return v, nil
	}
	v, err := read()
	if err == nil {
		e.snapshot.lists[key] = v
	}
	return v, err
}

// An object may implement these interfaces. They tell Compare and Repair what the list as a whole wants.
type (
	// overridable returns the object without what a later object of the attachment changes, or nil if nothing remains.
	overridable interface{ without(later Object) Object }

	// changer is an object that may change what earlier objects of the attachment set.
	changer interface{ changesEarlier() }

	// parent returns the objects that the kernel creates along with this one.
	parent interface{ implies() Objects }
)

// expected returns what should exist: the objects of a list that no later object overrides, and the objects that the
// kernel created along with them. Each object is there once.
func expected(list, later Objects) (out Objects) {
	type name struct {
		side Side
		text string
	}
	seen := make(map[name]bool, len(list))
	out = make(Objects, 0, len(list))
	add := func(o Object, after ...Objects) {
		for _, list := range after {
			for _, l := range list {
				if x, ok := o.(overridable); ok {
					if _, ok := l.(changer); ok {
						o = x.without(l)
					}
				}
			}
		}
		if o == nil {
			return
		}
		if n := (name{o.Side(), o.String()}); !seen[n] {
			seen[n] = true
			out = append(out, o)
		}
	}
	for i, o := range list {
		add(o, list[i+1:], later)
		if p, ok := o.(parent); ok {
			for _, c := range p.implies() {
				add(c, list[i+1:], later)
			}
		}
	}
	return out
}
