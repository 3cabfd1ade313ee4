package kernel

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/netns"
)

// Engine creates, compares and removes objects in the host's namespace and in one container's. It is not safe for
// concurrent use.
type Engine struct {
	ns     [2]*netns.Handle
	rt     [2]*netlink.Conn
	nf     *netlink.Conn
	nfSide Side // that nftables objects apply to
	rx     []byte
	index  [2]map[string]int // link name -> ifindex, as last seen

	seen map[linkName]*LinkInfo // links as last seen

	queue        []queued            // requests that are not sent yet, all for one side
	nft          []inRuleset         // for the next transaction
	leaving      []*Element          // elements that the next transaction deletes
	chainGroups  []*NFT              // parts of chain groups that may have become empty
	keptByOther  map[*Element]bool   // elements that another network of the same container keeps
	replaced     replaced            // what the next transaction deletes before it adds
	successors   map[string]*Element // by Element.id, see HandOver
	pairs        []*pairState        // that this engine created
	later        []later             // work that follows the nftables transaction
	created      []Object
	uncertain    error // why the engine does not know what the kernel created; nil: it does
	options      Options
	ctx          context.Context // bounds every wait
	ovs          Switch          // nil: the program has no Open vSwitch client
	snapshot     *snapshot       // of the Compare that runs; nil: none
	onlyCompares bool            // keep the snapshot for the next Compare
}

// Options answer questions that the engine cannot answer itself.
type Options struct {
	// Context bounds the engine's waits: for other links, for the carrier of a port, and for commands. Undo does not
	// depend on it, because it follows a cancellation. nil: each wait has only its own limit.
	Context context.Context

	// Alive reports whether the attachment with an owner tag exists. The engine replaces elements of dead owners. nil:
	// every owner is alive.
	Alive func(tag string) bool

	// SameContainer reports whether two owner tags belong to two attachments of one container. nil: a tag with hashes
	// belongs to an unknown container.
	SameContainer func(tag, other string) bool
}

func (o *Options) sameContainer(tag, other string) bool {
	if o.SameContainer == nil || tag == other {
		return SameContainer(tag, other)
	}
	return o.SameContainer(tag, other)
}

type queued struct {
	object Object
	side   Side
	req    netlink.Request
	then   func(netlink.Response) error
}

type later struct {
	object Object
	do     func() error
}

// Open returns an engine. The calling thread's namespace is the host's. container may be nil.
func Open(container *netns.Handle, o Options) (*Engine, error) {
	e := &Engine{seen: map[linkName]*LinkInfo{}, rx: make([]byte, netlink.BufferSize), options: o, ctx: o.Context}
	if e.ctx == nil {
		e.ctx = context.Background()
	}
	e.index[Host], e.index[Container] = map[string]int{}, map[string]int{}
	var err error
	if e.rt[Host], err = netlink.Dial(unix.NETLINK_ROUTE, e.rx); err != nil {
		return nil, err
	}
	host, err := netns.OfSocket(e.rt[Host])
	if err != nil {
		e.rt[Host].Close()
		return nil, err
	}
	e.ns = [2]*netns.Handle{host, container}
	return e, nil
}

// Close closes the engine's sockets. It does not close the container's namespace.
func (e *Engine) Close() {
	e.ns[Host].Close()
	e.rt[Host].Close()
	e.rt[Container].Close()
	e.nf.Close()
}

// errNoContainer is the error for an object of the container when there is no container.
var errNoContainer error = &os.SyscallError{Syscall: "find the container's network namespace", Err: os.ErrNotExist}

// route returns the rtnetlink socket of a side.
func (e *Engine) route(s Side) (*netlink.Conn, error) {
	if e.rt[s] != nil {
		return e.rt[s], nil
	}
	if e.ns[s] == nil {
		return nil, errNoContainer
	}
	err := e.ns[s].Do(func() (err error) {
		e.rt[s], err = netlink.Dial(unix.NETLINK_ROUTE, e.rx)
		return err
	})
	return e.rt[s], err
}

// NetnsID returns the ID of the container's namespace.
func (e *Engine) NetnsID() (netns.ID, error) {
	if e.ns[Container] == nil {
		return netns.ID{}, errNoContainer
	}
	return e.ns[Container].IDFrom(func() (*netlink.Conn, func(), error) {
		c, err := e.route(Container)
		return c, func() {}, err
	})
}

// Netfilter returns the netfilter socket of the host, or of the side of a reconciler.
func (e *Engine) Netfilter() (_ *netlink.Conn, err error) {
	if e.nf != nil {
		return e.nf, nil
	}
	err = e.InNetns(e.nfSide, func() (err error) {
		e.nf, err = netlink.Dial(unix.NETLINK_NETFILTER, e.rx)
		return err
	})
	return e.nf, err
}

// send queues a request for an object. then, if not nil, turns the response into the result; without it the response's
// own error is the result.
func (e *Engine) send(o Object, s Side, r netlink.Request, then func(netlink.Response) error) error {
	if len(e.queue) > 0 && e.queue[0].side != s {
		if err := e.flush(); err != nil {
			return err
		}
	}
	r.Flags |= unix.NLM_F_ACK
	e.queue = append(e.queue, queued{o, s, r, then})
	return nil
}

// requestsPerWrite limits one write of the queue: its acknowledgements must fit the default receive buffer, which holds
// more than 200.
const requestsPerWrite = 128

// flush sends the queue. It records created objects for Undo and returns the first error.
func (e *Engine) flush() error {
	rest := e.queue
	e.queue = nil
	if len(rest) == 0 {
		return nil
	}
	c, err := e.route(rest[0].side)
	if err != nil {
		return about(rest[0].object, err)
	}
	var first error
	for len(rest) > 0 {
		n := oneWrite(rest)
		resp, err := c.Do(requestsOf(rest[:n]))
		if err != nil {
			e.noteUnanswered(rest, err)
			return cmp.Or(first, err)
		}
		first = cmp.Or(first, answer(rest[:n], resp))
		rest = rest[n:]
	}
	return first
}

// oneWrite returns how many requests the next write sends. It ends between two objects, so that no kill comes between
// the creation of a link and its owner tag.
func oneWrite(queue []queued) int {
	n := min(requestsPerWrite, len(queue))
	for n < len(queue) && queue[n].object == queue[n-1].object {
		n++
	}
	return n
}

func requestsOf(batch []queued) []netlink.Request {
	reqs := make([]netlink.Request, len(batch))
	for i, q := range batch {
		reqs[i] = q.req
	}
	return reqs
}

// answer hands the responses of one write to its requests and returns the first error.
func answer(batch []queued, resp []netlink.Response) (first error) {
	for i, q := range batch {
		err := resp[i].Err
		if q.then != nil {
			err = q.then(resp[i])
		}
		if err != nil && first == nil {
			first = about(q.object, err)
		}
	}
	return first
}

// noteUnanswered records the links of requests for Undo: the kernel may have created them, but its reply is lost.
func (e *Engine) noteUnanswered(batch []queued, err error) {
	for _, q := range batch {
		if len(q.object.links()) > 0 {
			e.noteCreated(q.object)
		}
	}
	e.replyLost(err)
}

// Request sends one request at once and returns the response.
func (e *Engine) Request(s Side, r netlink.Request) (netlink.Response, error) {
	resp, err := e.Requests(s, []netlink.Request{r})
	if err != nil {
		return netlink.Response{}, err
	}
	return resp[0], resp[0].Err
}

// Requests sends requests in one write and returns the response to each.
func (e *Engine) Requests(s Side, reqs []netlink.Request) ([]netlink.Response, error) {
	if err := e.flush(); err != nil {
		return nil, err
	}
	c, err := e.route(s)
	if err != nil {
		return nil, err
	}
	changes := false
	for i := range reqs {
		if reqs[i].Type != unix.RTM_GETLINK { // the kernel answers it in any case
			reqs[i].Flags |= unix.NLM_F_ACK
		}
		changes = changes || reqs[i].Type%4 != unix.RTM_GETLINK%4 // message types come in fours, and the third one only reads
	}
	resp, err := c.Do(reqs)
	if err != nil && changes {
		e.replyLost(err)
	}
	return resp, err
}

func (e *Engine) replyLost(err error) {
	e.uncertain = fmt.Errorf("the kernel may have applied what was sent before: %w", err)
}

// Dump sends a request for a list and returns the messages.
func (e *Engine) Dump(s Side, r netlink.Request) ([][]byte, error) {
	if err := e.flush(); err != nil {
		return nil, err
	}
	c, err := e.route(s)
	if err != nil {
		return nil, err
	}
	return c.Dump(r)
}
