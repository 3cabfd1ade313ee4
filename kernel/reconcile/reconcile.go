package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Reconciler keeps the objects of one owner in a namespace as desired. It finds all objects of the owner in the kernel,
// so it also removes those that are no longer wanted.
//
// It remembers what it listed and created, so an unchanged desired state costs only a comparison. NeedsResync and
// Invalidate make it list the kernel again.
type Reconciler struct {
	// NoRemove keeps unwanted objects. It is for a caller whose desired state may be incomplete.
	NoRemove bool

	e     *kernel.Engine
	side  kernel.Side
	owner Owner

	links  map[string]*kernel.LinkInfo // the owner's links by name
	routes map[routeKey]routeValue
	rules  map[kernel.Rule]bool
	neighs map[neighKey]string // hardware address
	fdb    map[fdbKey]fdbValue
	addrs  map[addrKey]bool
	nft    string // tableHash of the owner's table; "": the table does not exist
	known  bool
}

// Owner tells which objects in the kernel belong to one owner.
type Owner struct {
	Protocol byte   // of routes and rules
	Alias    string // prefix of the alias of its links
	Table    string // its nftables table, of the family inet
}

// Report is the result of a Reconcile.
type Report struct {
	Applied int
	Removed int
	Changes []string // the first of them, as text
	Listed  bool     // whether the kernel was listed
	Errors  []error  // *kernel.ObjectError, or the error of a list

	Diverted []Diverted // at the last list; the caller sets it
	Busy     bool       // something is in use for a moment, and was not removed yet; the caller sets it
}

const maxChanges = 20

func (r *Report) applied(o kernel.Object) { r.Applied++; r.note(o.String()) }
func (r *Report) removed(s string)        { r.Removed++; r.note("remove " + s) }

func (r *Report) note(s string) {
	if len(r.Changes) < maxChanges {
		r.Changes = append(r.Changes, s)
	}
}

func (r *Report) fail(o kernel.Object, err error) {
	if err != nil && len(r.Errors) < 4*maxChanges {
		r.Errors = append(r.Errors, kernel.WrapObject(o, err))
	}
}

// Add adds another report. Its errors get the prefix where, unless that is "".
func (r *Report) Add(o *Report, where string) {
	r.Applied, r.Removed, r.Listed = r.Applied+o.Applied, r.Removed+o.Removed, r.Listed || o.Listed
	for _, c := range o.Changes {
		r.note(c)
	}
	for _, err := range o.Errors {
		if where != "" {
			err = fmt.Errorf("%s: %w", where, err)
		}
		r.Errors = append(r.Errors, err)
	}
}

// Err joins the errors. It returns nil if there are none.
func (r *Report) Err() error { return errors.Join(r.Errors...) }

// New returns a reconciler for one side of an engine that nothing else uses. All objects, also those of nftables, apply
// to that side. The first Reconcile lists the kernel.
func New(e *kernel.Engine, side kernel.Side, owner Owner) *Reconciler {
	e.ServeReconciler(side)
	return &Reconciler{e: e, side: side, owner: owner}
}

// Invalidate makes the next Reconcile list the kernel.
func (r *Reconciler) Invalidate() { r.known = false }

// Reconcile creates and changes what differs from the desired objects, and removes the owner's other objects. It
// continues after an error; the next call tries again. The calling thread must be in the engine's host namespace.
func (r *Reconciler) Reconcile(want kernel.Objects) *Report {
	rep := &Report{}
	w := partitionObjects(want)
	if !r.known {
		if err := r.list(w); err != nil {
			rep.Errors = append(rep.Errors, err)
			return rep
		}
		rep.Listed = true
	}
	for _, o := range w.others {
		r.one(rep, o)
	}
	changed, failed := r.updateLinks(rep, w.links)
	if changed { // a link that was created again lost its addresses and routes
		if err := r.list(w); err != nil {
			rep.Errors = append(rep.Errors, err)
			return rep
		}
	}
	w.keyed = slices.DeleteFunc(w.keyed, func(o kernel.Object) bool { // the link is missing, or a third-party link has its name
		name := kernel.LinkNameOf(o)
		return failed[name] && r.links[name] == nil
	})
	r.updateTable(rep, w.nft)
	r.updateKeyed(rep, w)
	if !r.NoRemove {
		r.removeLinks(rep, w.links)
	}
	return rep
}

// partition groups the desired objects by the way in which they are reconciled.
type partition struct {
	links  []kernel.Object
	nft    []kernel.Object
	others []kernel.Object // compared one by one
	keyed  []kernel.Object // many of a kind, compared by key
}

func partitionObjects(list kernel.Objects) (w partition) {
	for _, o := range list {
		switch o.(type) {
		case *kernel.NFT, *kernel.Element:
			w.nft = append(w.nft, o)
		case *kernel.Route, *kernel.Rule, *kernel.Neigh, *kernel.FDB, *kernel.Addr:
			w.keyed = append(w.keyed, o)
		default:
			if len(kernel.LinkNames(o)) > 0 {
				w.links = append(w.links, o)
			} else {
				w.others = append(w.others, o)
			}
		}
	}
	return w
}

// one reconciles an object that is compared on its own.
func (r *Reconciler) one(rep *Report, o kernel.Object) {
	d, err := r.e.CompareOne(o)
	if err == nil && len(d.What) > 0 {
		if err = r.e.RestoreNow(o); err == nil {
			rep.applied(o)
		}
	}
	rep.fail(o, err)
}

// updateLinks creates and changes the links that differ. It reports whether it tried to, and the names of the links where
// that failed.
func (r *Reconciler) updateLinks(rep *Report, links []kernel.Object) (changed bool, failed map[string]bool) {
	failed = map[string]bool{}
	for _, o := range links {
		d, err := r.e.CompareOne(o)
		if err == nil && len(d.What) > 0 {
			changed = true
			if err = r.e.EnsureNow(o); err == nil {
				rep.applied(o)
			}
		}
		if err != nil {
			rep.fail(o, err)
			for _, name := range kernel.LinkNames(o) {
				failed[name] = true
			}
		}
	}
	return changed, failed
}

// removeLinks removes the owner's links that are not wanted.
func (r *Reconciler) removeLinks(rep *Report, links []kernel.Object) {
	keep := map[string]bool{}
	for _, o := range links {
		for _, name := range kernel.LinkNames(o) {
			keep[name] = true
		}
	}
	for name, l := range r.links {
		if keep[name] {
			continue
		}
		_, err := r.e.Request(r.side, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)})
		if err != nil && !netlink.IsAbsent(err) {
			rep.Errors = append(rep.Errors, fmt.Errorf("ip link del %s: %w", name, err))
			continue
		}
		delete(r.links, name)
		rep.removed("ip link " + name)
	}
}

// list reads all of the owner's objects from the kernel.
func (r *Reconciler) list(w partition) error {
	r.known = false
	r.e.Reset()
	all, err := r.e.Links(r.side)
	if err != nil {
		return err
	}
	r.links = map[string]*kernel.LinkInfo{}
	for _, l := range all {
		r.e.RememberIndex(r.side, l)
		if strings.HasPrefix(l.Alias, r.owner.Alias) {
			r.links[l.Name] = l
		}
	}
	if err := errors.Join(r.listRoutes(), r.listRules(), r.listOnLinks(), r.readTable(w.nft)); err != nil {
		return err
	}
	r.known = true
	return nil
}

// Links returns the names of the owner's links, sorted, as last seen.
func (r *Reconciler) Links() (names []string) {
	for name := range r.links {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
