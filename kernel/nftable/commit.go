package nftable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

const (
	// maxTransaction is the size in bytes of a transaction that can be divided. The kernel handles it in about 100 ms. With
	// 256 KiB, a table of 2,000 chains took a quarter longer.
	maxTransaction = 1 << 20

	sendTries  = 10
	retryPause = 20 * time.Millisecond
)

// commit sends the transactions of a plan.
func (p *Programmer) commit(ctx context.Context, pl *plan, transactions [][]request) error {
	if pl.err != nil {
		return pl.err
	}
	for _, t := range transactions {
		if err := p.transact(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// whole returns the plan as one transaction.
func (pl *plan) whole() [][]request { return [][]request{pl.between(0, stepCount)} }

// together returns the plan as one transaction. A new set of intervals needs one before it: see the package comment. The
// deletion of a set needs one after it: a packet that has met the old rules may still search the set, and with it gone
// would not be in it.
func (pl *plan) together() (out [][]request) {
	from := 0
	if pl.newIntervals {
		out, from = append(out, pl.between(0, flushChains)), flushChains
	}
	if len(pl.steps[flushOldSets])+len(pl.steps[deleteSets]) > 0 {
		return append(out, pl.between(from, flushOldChains), pl.between(flushOldChains, stepCount))
	}
	return append(out, pl.between(from, stepCount))
}

// divided returns the plan as transactions of limited size. Only the switch is always one transaction.
func (pl *plan) divided() [][]request {
	out := divide(pl.between(0, flushChains))
	out = append(out, pl.between(flushChains, flushOldChains))
	return append(out, divide(pl.between(flushOldChains, stepCount))...)
}

func (pl *plan) between(from, to int) (out []request) {
	for _, step := range pl.steps[from:to] {
		out = append(out, step...)
	}
	return out
}

// divide splits requests, in order, into transactions of limited size.
func divide(reqs []request) (out [][]request) {
	size, start := 0, 0
	for i, r := range reqs {
		if size += len(r.Body); size > maxTransaction && i > start {
			out, size, start = append(out, reqs[start:i]), len(r.Body), i
		}
	}
	return append(out, reqs[start:])
}

// transact sends one transaction. It repeats it while the kernel has not got the memory for the message.
func (p *Programmer) transact(ctx context.Context, t []request) (err error) {
	reqs := make([]netlink.Request, len(t))
	for i, r := range t {
		reqs[i] = r.Request
	}
	for range sendTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		err = p.send(t, reqs)
		if socket, ok := errors.AsType[*netlink.SocketError](err); !ok || socket.Err != unix.ENOBUFS || isUnanswered(err) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return err
}

// send returns the first error of a transaction.
func (p *Programmer) send(t []request, reqs []netlink.Request) error {
	resp, err := p.conn.Transact(reqs, 0)
	for i, r := range resp {
		if r.Err != nil {
			return fmt.Errorf("%s: %w", t[i].what, r.Err)
		}
	}
	return err
}

func isUnanswered(err error) bool {
	_, ok := errors.AsType[*netlink.UnansweredError](err)
	return ok
}

// isDrift reports whether an error may mean that the kernel's table is not as it was, or that another change
// interfered: then Sync helps.
func isDrift(err error) bool {
	for _, errno := range []unix.Errno{
		unix.ENOENT, unix.EEXIST, unix.EBUSY, unix.ENOTEMPTY, unix.ERESTART, unix.EAGAIN, unix.EINTR, unix.ENOBUFS,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return isUnanswered(err)
}

// pause waits before another try.
func pause(ctx context.Context) error {
	t := time.NewTimer(retryPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
