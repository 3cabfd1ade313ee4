package reconcile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Reconciler keeps what one owner wants in a namespace: all that is there of the
// owner's is known, so what is wanted no longer is removed.
//
// It remembers what it saw and made: to want the same again costs a comparison.
// What others change is told by Contradicts, or seen at the next look after Forget.
type Reconciler struct {
	// Spare leaves what is not wanted: who is not sure to know all takes nothing away.
	NoRemove bool

	e     *kernel.Engine
	side  kernel.Side
	owner Owner

	links  map[string]*kernel.LinkInfo // ours, by name
	routes map[routeKey]routeValue
	rules  map[kernel.Rule]bool
	neighs map[neighKey]string // hardware address
	fdb    map[fdbKey]fdbValue
	addrs  map[addrKey]bool
	nft    string // what our table says it holds, see nftSum; "": it is not there
	known  bool
}

// OwnerOf is by what things in the kernel are known as an owner's.
type Owner struct {
	Protocol byte   // of routes and rules
	Alias    string // with which the alias of its links begins
	Table    string // its nftables table, of family inet
}

// Report is what a Reconcile changed, and what it could not.
type Report struct {
	Applied int
	Removed int
	Changes []string // the first of them, in words
	Listed  bool     // the kernel was listed
	Errors  []error  // *ObjectError, or of a list
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

// Add adds what another Reconcile did; its errors begin with where, if that is not "".
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

// Err joins the errors.
func (r *Report) Err() error { return errors.Join(r.Errors...) }

// NewReconciler makes one for a side of an engine, which is its alone: all objects
// are of that side, nftables' too. It knows nothing yet: its first Reconcile lists all.
func New(e *kernel.Engine, side kernel.Side, owner Owner) *Reconciler {
	e.ServeReconciler(side)
	return &Reconciler{e: e, side: side, owner: owner}
}

// Forget has the next Reconcile list all.
func (r *Reconciler) Invalidate() { r.known = false }

// Reconcile makes what is wanted so, and removes what is the owner's besides. It
// goes on after an error; what failed is tried again by the next one. The calling
// thread must be in the engine's host namespace.
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
	if r.updateLinks(rep, w.links) { // what was on a link that was made anew is gone
		if err := r.list(w); err != nil {
			rep.Errors = append(rep.Errors, err)
			return rep
		}
	}
	r.updateTable(rep, w.nft)
	r.updateKeyed(rep, w)
	if !r.NoRemove {
		r.removeLinks(rep, w.links)
	}
	return rep
}

// wanted are objects by the way in which they are kept.
type partition struct {
	links  []kernel.Object
	nft    []kernel.Object
	others []kernel.Object // compared one by one
	keyed  []kernel.Object // many of a kind
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

// generic makes an object so that is the only one of its kind.
func (r *Reconciler) one(rep *Report, o kernel.Object) {
	what, err := r.e.DriftOf(o)
	if err == nil && len(what) > 0 {
		if err = r.e.RestoreNow(o); err == nil {
			rep.applied(o)
		}
	}
	rep.fail(o, err)
}

// putLinks makes the links that are not as they should be, and tells whether one
// is new.
func (r *Reconciler) updateLinks(rep *Report, links []kernel.Object) (anew bool) {
	for _, o := range links {
		what, err := r.e.DiffOf(o)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			rep.fail(o, err)
			continue
		}
		if err == nil && len(what) == 0 {
			continue
		}
		anew = true
		if err = r.e.EnsureNow(o); err == nil {
			rep.applied(o)
		}
		rep.fail(o, err)
	}
	return anew
}

// dropLinks removes links of the owner's that are not wanted.
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

// look lists everything of the owner's.
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

// Links are the owner's links by name, as last seen.
func (r *Reconciler) Links() (names []string) {
	for name := range r.links {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
