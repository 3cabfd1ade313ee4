package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Engine makes objects so, compares them, or removes them, in the host's
// namespace and one container's. It is for one goroutine at a time.
type Engine struct {
	ns    [2]*Netns
	rt    [2]*conn
	nf    *conn
	rx    []byte
	index [2]map[string]int // link name -> ifindex, as last seen

	seen map[linkName]*LinkInfo

	queue   []queued       // requests not sent yet, all for one side
	nft     []Object       // nftables objects of the current list, for one transaction
	groups  []*NFT         // parts of networks that may have become empty
	later   []func() error // what follows the nftables transaction
	undo    []Object
	options Options
}

// Options are the questions that the engine cannot answer itself.
type Options struct {
	// Alive tells whether the owner that a mark names still stands; an element
	// of a dead one may be replaced. nil: every owner is alive.
	Alive func(mark string) bool
}

type queued struct {
	object Object
	side   Side
	req    request
	then   func(response) error
}

// Open makes an engine for the calling thread's namespace as host and the
// container's namespace, which may be nil.
func Open(container *Netns, o Options) (*Engine, error) {
	host, err := Current()
	if err != nil {
		return nil, err
	}
	e := &Engine{seen: map[linkName]*LinkInfo{}, ns: [2]*Netns{host, container}, rx: make([]byte, rxSize), options: o}
	e.index[Host], e.index[Container] = map[string]int{}, map[string]int{}
	if e.rt[Host], err = dial(unix.NETLINK_ROUTE, e.rx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Close closes the engine's handles, the container's namespace not included.
func (e *Engine) Close() {
	e.ns[Host].Close()
	e.rt[Host].close()
	e.rt[Container].close()
	e.nf.close()
}

// errNoContainer is what an object of the container meets when there is none.
var errNoContainer = fmt.Errorf("no container namespace: %w", os.ErrNotExist)

// route returns the rtnetlink socket of a side.
func (e *Engine) route(s Side) (*conn, error) {
	if e.rt[s] != nil {
		return e.rt[s], nil
	}
	if e.ns[s] == nil {
		return nil, errNoContainer
	}
	err := e.ns[s].Do(func() (err error) {
		e.rt[s], err = dial(unix.NETLINK_ROUTE, e.rx)
		return err
	})
	return e.rt[s], err
}

// netfilter returns the host's netfilter socket.
func (e *Engine) netfilter() (_ *conn, err error) {
	if e.nf == nil {
		e.nf, err = dial(unix.NETLINK_NETFILTER, e.rx)
	}
	return e.nf, err
}

// Apply makes every object so, in order. On a failure it undoes what this call
// made, in reverse, and returns the failure joined with the undo's own.
func (e *Engine) Apply(list Objects) error {
	mark := len(e.undo)
	for _, o := range list {
		if err := o.ensure(e); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", o, err), e.rollback(mark))
		}
	}
	err := e.flush()
	if err == nil {
		err = e.commit()
	}
	if err == nil {
		err = e.finish()
	}
	if err != nil {
		return errors.Join(err, e.rollback(mark))
	}
	return nil
}

// finish does what had to wait for the nftables transaction.
func (e *Engine) finish() error {
	var errs []error
	for _, f := range e.later {
		errs = append(errs, f())
	}
	e.later = nil
	return errors.Join(errs...)
}

// Undo removes, in reverse, everything that this engine's Applies made.
func (e *Engine) Undo() error { return e.rollback(0) }

func (e *Engine) rollback(mark int) error {
	// What was sent before the failure and not yet answered for.
	e.queue, e.nft, e.groups, e.later = nil, nil, nil, nil
	made := slices.Clone(e.undo[mark:])
	e.undo = e.undo[:mark]
	err := e.Remove(made)
	if err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// made notes that an object was created by this engine.
func (e *Engine) made(o Object) {
	if !o.Shared() {
		e.undo = append(e.undo, o)
	}
}

// Remove removes the objects that are not shared, in reverse. What is already
// gone is success; it goes on after an error and joins the errors. Objects
// that live on a link of the list go with the link.
func (e *Engine) Remove(list Objects) error {
	carried := carriers(list)
	var errs []error
	note := func(o Object, err error) {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove %s: %w", o, err))
		}
	}
	for _, o := range slices.Backward(list) {
		if n, ok := o.(*NFT); ok && n.Group != "" {
			e.groups = append(e.groups, n)
		}
		if !o.Shared() && !carried[o.on()] {
			note(o, o.remove(e))
		}
	}
	errs = append(errs, e.commitRemoval(), e.finish())
	return errors.Join(errs...)
}

// carriers are the links that a list owns, with which others of it go.
func carriers(list Objects) map[linkName]bool {
	out := map[linkName]bool{}
	for _, o := range list {
		if !o.Shared() {
			for _, l := range o.links() {
				out[l] = true
			}
		}
	}
	return out
}

// Split parts the links of a list, whose removal the kernel makes wait
// (rcu_barrier, about 20 ms), from what is to be removed besides.
func Split(list Objects) (links, rest Objects) {
	carried := carriers(list)
	for _, o := range list {
		switch {
		case !o.Shared() && len(o.links()) > 0:
			links = append(links, o)
		case !carried[o.on()]:
			rest = append(rest, o)
		}
	}
	return links, rest
}

// Difference is an object that is not as it should be.
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

// Check returns every object that differs, and changes nothing.
func (e *Engine) Check(list Objects) ([]Difference, error) {
	var out []Difference
	var errs []error
	for _, o := range list {
		what, err := o.diff(e)
		switch {
		case errors.Is(err, os.ErrNotExist):
			what = []string{"is missing"}
		case err != nil:
			errs = append(errs, fmt.Errorf("look at %s: %w", o, err))
			continue
		}
		if len(what) > 0 {
			out = append(out, Difference{o, what})
		}
	}
	return out, errors.Join(errs...)
}

// send queues a request for an object; then sees the kernel's answer and
// returns what to make of it (nil: the answer's own error counts).
func (e *Engine) send(o Object, s Side, r request, then func(response) error) error {
	if len(e.queue) > 0 && e.queue[0].side != s {
		if err := e.flush(); err != nil {
			return err
		}
	}
	r.flags |= unix.NLM_F_ACK
	e.queue = append(e.queue, queued{o, s, r, then})
	return nil
}

// flush sends what is queued in one write. Everything that succeeded is noted
// for the undo; the first failure is returned.
func (e *Engine) flush() error {
	batch := e.queue
	e.queue = nil
	if len(batch) == 0 {
		return nil
	}
	c, err := e.route(batch[0].side)
	if err != nil {
		return fmt.Errorf("%s: %w", batch[0].object, err)
	}
	reqs := make([]request, len(batch))
	for i, q := range batch {
		reqs[i] = q.req
	}
	resp, err := c.do(reqs)
	if err != nil {
		return err
	}
	var first error
	for i, q := range batch {
		err := resp[i].err
		if q.then != nil {
			err = q.then(resp[i])
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%s: %w", q.object, err)
		}
	}
	return first
}

// now sends one request at once and returns its answer.
func (e *Engine) now(s Side, r request) (response, error) {
	if err := e.flush(); err != nil {
		return response{}, err
	}
	c, err := e.route(s)
	if err != nil {
		return response{}, err
	}
	r.flags |= unix.NLM_F_ACK
	resp, err := c.do([]request{r})
	if err != nil {
		return response{}, err
	}
	return resp[0], resp[0].err
}

// dump lists on a side.
func (e *Engine) dump(s Side, r request) ([][]byte, error) {
	if err := e.flush(); err != nil {
		return nil, err
	}
	c, err := e.route(s)
	if err != nil {
		return nil, err
	}
	return c.dump(r)
}
