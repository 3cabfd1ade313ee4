package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

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

	e     *Engine
	side  Side
	owner Keeper

	links  map[string]*LinkInfo // ours, by name
	routes map[routeKey]routeValue
	rules  map[Rule]bool
	neighs map[neighKey]string // hardware address
	fdb    map[fdbKey]fdbValue
	addrs  map[addrKey]bool
	nft    string // what our table says it holds, see nftSum; "": it is not there
	known  bool
}

// Keeper is by what things in the kernel are known as an owner's.
type Keeper struct {
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

const changesShown = 20

func (r *Report) applied(o Object) { r.Applied++; r.note(o.String()) }
func (r *Report) removed(s string) { r.Removed++; r.note("remove " + s) }

func (r *Report) note(s string) {
	if len(r.Changes) < changesShown {
		r.Changes = append(r.Changes, s)
	}
}

func (r *Report) fail(o Object, err error) {
	if err != nil && len(r.Errors) < 4*changesShown {
		r.Errors = append(r.Errors, about(o, err))
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
func NewReconciler(e *Engine, side Side, owner Keeper) *Reconciler {
	e.nfSide = side
	if c, err := e.route(side); err == nil { // acknowledgements arrive by the hundred
		_ = unix.SetsockoptInt(c.FD(), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	}
	return &Reconciler{e: e, side: side, owner: owner}
}

// Forget has the next Reconcile list all.
func (r *Reconciler) Invalidate() { r.known = false }

// Reconcile makes what is wanted so, and removes what is the owner's besides. It
// goes on after an error; what failed is tried again by the next one. The calling
// thread must be in the engine's host namespace.
func (r *Reconciler) Reconcile(want Objects) *Report {
	rep := &Report{}
	w := part(want)
	if !r.known {
		if err := r.look(w); err != nil {
			rep.Errors = append(rep.Errors, err)
			return rep
		}
		rep.Listed = true
	}
	for _, o := range w.others {
		r.generic(rep, o)
	}
	if r.putLinks(rep, w.links) { // what was on a link that was made anew is gone
		if err := r.look(w); err != nil {
			rep.Errors = append(rep.Errors, err)
			return rep
		}
	}
	r.tables(rep, w.nft)
	r.keyed(rep, w)
	if !r.NoRemove {
		r.dropLinks(rep, w.links)
	}
	return rep
}

// wanted are objects by the way in which they are kept.
type wanted struct {
	links  []Object
	nft    []Object
	others []Object // compared one by one
	keyed  []Object // many of a kind
}

func part(list Objects) (w wanted) {
	for _, o := range list {
		switch o.(type) {
		case *NFT, *Element:
			w.nft = append(w.nft, o)
		case *Route, *Rule, *Neigh, *FDB, *Addr:
			w.keyed = append(w.keyed, o)
		default:
			if len(o.links()) > 0 {
				w.links = append(w.links, o)
			} else {
				w.others = append(w.others, o)
			}
		}
	}
	return w
}

// generic makes an object so that is the only one of its kind.
func (r *Reconciler) generic(rep *Report, o Object) {
	what, err := r.e.driftOne(o)
	if err == nil && len(what) > 0 {
		if err = ensureOrRestore(r.e, o); err == nil {
			err = r.e.flush()
		}
		if err == nil {
			rep.applied(o)
		}
	}
	r.e.discardPending()
	rep.fail(o, err)
}

// settle drops what a failure left queued, and what would be undone.
func (e *Engine) discardPending() {
	e.queue, e.later, e.nft = nil, nil, nil
	e.created = nil
}

// putLinks makes the links that are not as they should be, and tells whether one
// is new.
func (r *Reconciler) putLinks(rep *Report, links []Object) (anew bool) {
	for _, o := range links {
		what, err := o.diff(r.e)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			rep.fail(o, err)
			continue
		}
		if err == nil && len(what) == 0 {
			continue
		}
		anew = true
		if err = o.ensure(r.e); err == nil {
			err = r.e.flush()
		}
		r.e.DiscardUndo()
		r.e.discardPending()
		if err == nil {
			rep.applied(o)
		}
		rep.fail(o, err)
	}
	return anew
}

// dropLinks removes links of the owner's that are not wanted.
func (r *Reconciler) dropLinks(rep *Report, links []Object) {
	keep := map[string]bool{}
	for _, o := range links {
		for _, l := range o.links() {
			keep[l.name] = true
		}
	}
	for name, l := range r.links {
		if keep[name] {
			continue
		}
		_, err := r.e.now(r.side, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)})
		if err != nil && !netlink.IsAbsent(err) {
			rep.Errors = append(rep.Errors, fmt.Errorf("ip link del %s: %w", name, err))
			continue
		}
		delete(r.links, name)
		rep.removed("ip link " + name)
	}
}

// look lists everything of the owner's.
func (r *Reconciler) look(w wanted) error {
	r.known = false
	r.e.DiscardUndo()
	r.e.discardPending()
	all, err := r.e.Links(r.side)
	if err != nil {
		return err
	}
	r.links = map[string]*LinkInfo{}
	for _, l := range all {
		r.e.index[r.side][l.Name] = l.Index
		if strings.HasPrefix(l.Alias, r.owner.Alias) {
			r.links[l.Name] = l
		}
	}
	if err := errors.Join(r.lookRoutes(), r.lookRules(), r.lookLinks(), r.lookTable(w.nft)); err != nil {
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
