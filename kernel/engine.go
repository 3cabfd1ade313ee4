package kernel

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/netns"
)

// Engine makes objects so, compares them, or removes them, in the host's
// namespace and one container's. It is for one goroutine at a time.
type Engine struct {
	ns     [2]*netns.Handle
	rt     [2]*netlink.Conn
	nf     *netlink.Conn
	nfSide Side // of nftables
	rx     []byte
	index  [2]map[string]int // link name -> ifindex, as last seen

	seen map[linkName]*LinkInfo // as this engine last found them

	queue       []queued            // requests not sent yet, all for one side
	nft         []Object            // nftables objects of the current list, for one transaction
	chainGroups []*NFT              // parts of networks that may have become empty
	keptByOther map[*Element]bool   // of them: stand already, for another network of the container
	successors  map[string]*Element // see Bequeath
	later       []later             // what follows the nftables transaction
	created     []Object
	uncertain   error // why it is not known whether what was sent was made
	options     Options
	ovs         Switch // nil: none was brought along
	checkCache  *checkCache
}

// looked is what one Check has seen.
type checkCache struct {
	links map[linkName]*LinkInfo
	rules map[string][]NFTRule // of our table, by chain; nil: not listed
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
	req    netlink.Request
	then   func(netlink.Response) error
}

type later struct {
	object Object
	do     func() error
}

// Open makes an engine for the calling thread's namespace as host and the
// container's namespace, which may be nil.
func Open(container *netns.Handle, o Options) (*Engine, error) {
	e := &Engine{seen: map[linkName]*LinkInfo{}, rx: make([]byte, netlink.BufferSize), options: o}
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

// Close closes the engine's handles, the container's namespace not included.
func (e *Engine) Close() {
	e.ns[Host].Close()
	e.rt[Host].Close()
	e.rt[Container].Close()
	e.nf.Close()
}

// errNoContainer is what an object of the container meets when there is none.
var errNoContainer error = &os.SyscallError{Syscall: "find the container's namespace", Err: os.ErrNotExist}

// route returns the rtnetlink socket of a side.
func (e *Engine) route(s Side) (*netlink.Conn, error) {
	if e.rt[s] != nil {
		return e.rt[s], nil
	}
	if e.ns[s] == nil {
		return nil, errNoContainer
	}
	err := e.ns[s].DoFrom(e.ns[Host], func() (err error) {
		e.rt[s], err = netlink.Dial(unix.NETLINK_ROUTE, e.rx)
		return err
	})
	return e.rt[s], err
}

// Netfilter returns the netfilter socket: the host's, but for a Reconciler of the
// other side.
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

// send queues a request for an object; then sees the kernel's answer and
// returns what to make of it (nil: the answer's own error counts).
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
		return about(batch[0].object, err)
	}
	reqs := make([]netlink.Request, len(batch))
	for i, q := range batch {
		reqs[i] = q.req
	}
	resp, err := c.Do(reqs)
	if err != nil {
		for _, q := range batch { // the kernel may have made them, and its answer is lost
			if len(q.object.links()) > 0 {
				e.noteCreated(q.object)
			}
		}
		e.replyLost(err)
		return err
	}
	var first error
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

// now sends one request at once and returns its answer.
func (e *Engine) Request(s Side, r netlink.Request) (netlink.Response, error) {
	resp, err := e.Requests(s, []netlink.Request{r})
	if err != nil {
		return netlink.Response{}, err
	}
	return resp[0], resp[0].Err
}

// together sends requests in one write and returns the answer to each.
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
		reqs[i].Flags |= unix.NLM_F_ACK
		changes = changes || reqs[i].Type%4 != unix.RTM_GETLINK%4 // of four types each third one asks
	}
	resp, err := c.Do(reqs)
	if err != nil && changes {
		e.replyLost(err)
	}
	return resp, err
}

func (e *Engine) replyLost(err error) {
	e.uncertain = fmt.Errorf("what was sent before may stand: %w", err)
}

// dump lists on a side.
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
