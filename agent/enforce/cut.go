package enforce

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// cutter cuts connections that exist and that policy forbids. Rules accept the packets of connections that exist, so a
// table of its own drops those of some.
//
// The rules, the kernel's connection tracking entries and the kernel's table decide which connections are cut. So a new
// process needs nothing else from its predecessor. Until it has written the table, the cut connections stay cut. No entry is
// deleted: without it, the next packet of either end would begin a new connection.
type cutter struct {
	e         *Enforcer
	conntrack *kernel.Conntrack
	p         *nftable.Programmer
	kick      chan struct{}

	cut       *policy.Cut // in the kernel; nil: unknown
	disturbed atomic.Bool // somebody else may have changed the kernel's table
}

const (
	settle    = 20 * time.Millisecond // until the packets that the former rules accepted have their entries
	recheck   = 30 * time.Second      // interval of passes without a change
	pacing    = 20                    // a pass is followed by a pause of so many times its duration
	shortest  = 100 * time.Millisecond
	decisions = 1000   // during which no event can change the rules
	maxKept   = 50_000 // connections of TCP that stay cut although their entry may have ended
)

// run makes a pass after each change of the rules, and now and then: connections end, and related ones begin.
func (c *cutter) run(ctx context.Context) {
	timer := time.NewTicker(recheck)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		case <-timer.C:
		}
		if !sleep(ctx, settle) {
			return
		}
		began := time.Now()
		err := c.pass(ctx)
		pause := max(shortest, pacing*time.Since(began))
		if err != nil && ctx.Err() == nil {
			c.e.o.Log.Error("connections that policy forbids may continue", "error", err)
			pause = max(pause, longRetry)
			wake(c.kick)
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// pass brings the kernel's table of cut connections up to date.
func (c *cutter) pass(ctx context.Context) error {
	if !c.e.isInForce() {
		return nil
	}
	if c.cut == nil {
		tcp, err := policy.CutTCP(c.p.Elements)
		if err != nil {
			return err
		}
		c.cut = &policy.Cut{TCP: tcp}
		c.disturbed.Store(true)
	}
	now, err := c.forbidden()
	if err != nil {
		return err
	}
	if err := c.write(ctx, now); err != nil {
		c.disturbed.Store(true)
		return err
	}
	if n := added(c.cut.TCP, now.TCP) + added(c.cut.Numbers, now.Numbers); n > 0 {
		c.e.o.Log.Info("network policy cuts connections", "connections", n)
	}
	c.cut = now
	return nil
}

// added returns how many keys are new.
func added[K comparable](before, now map[K]bool) (n int) {
	for k := range now {
		if !before[k] {
			n++
		}
	}
	return n
}

func (c *cutter) write(ctx context.Context, cut *policy.Cut) (err error) {
	disturbed := c.disturbed.Swap(false)
	switch table := cut.Table(); {
	case !cut.Empty() && !c.cut.Empty() && !disturbed:
		_, err = c.p.Apply(ctx, table, policy.CutChanges())
	case !cut.Empty():
		_, err = c.p.Sync(ctx, table)
	case !c.cut.Empty() || disturbed:
		_, err = c.p.Delete(ctx, policy.TableFamily, policy.CutTableName)
	}
	return err
}

// forbidden returns the connections that policy forbids: those that exist, and those of TCP that are cut.
func (c *cutter) forbidden() (*policy.Cut, error) {
	out := &policy.Cut{Numbers: map[uint32]bool{}, TCP: map[policy.TCP]bool{}}
	if !c.e.restricts() {
		return out, nil
	}
	list, own, err := c.conntrack.FromOthers()
	if err != nil {
		return nil, err
	}
	kept := 0
	for x := range c.cut.TCP {
		if kept++; kept <= maxKept {
			list = append(list, kernel.Connection{Protocol: tcp, Src: x.Src, Dst: x.Dst})
		}
	}
	for some := range slices.Chunk(list, decisions) {
		if err := c.e.forbidden(some, own, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e *Enforcer) isInForce() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inForce
}

// restricts reports whether policy applies to any endpoint of this node.
func (e *Enforcer) restricts() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.evaluator().Restricts()
}

// forbidden adds the connections that policy forbids now. A related connection is allowed if the one that announced it is.
// own is the node's addresses.
func (e *Enforcer) forbidden(list []kernel.Connection, own *kernel.LocalAddrs, to *policy.Cut) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.evaluator()
	for _, x := range list {
		first := x
		if x.Parent != nil {
			first = *x.Parent
		}
		decide := v.Decide
		if own.Has(first.Dst.Addr()) {
			decide = v.DecideToNode
		}
		switch d, err := decide(packetOf(first)); {
		case err != nil:
			return fmt.Errorf("decide about connections: %w", err)
		case d.Allowed:
		case x.Protocol == tcp:
			to.TCP[policy.TCP{Src: x.Src, Dst: x.Dst}] = true
		default:
			to.Numbers[x.ID] = true
		}
	}
	return nil
}

// evaluator returns an evaluator of the current rules. The caller holds the lock.
func (e *Enforcer) evaluator() *policy.Evaluator {
	if e.decide == nil {
		e.decide = e.compiler.Evaluator()
	}
	return e.decide
}

// IANA's protocol numbers.
const (
	icmp, tcp, udp, icmpv6, sctp = 1, 6, 17, 58, 132
)

// packetOf returns the first packet of a connection.
func packetOf(x kernel.Connection) policy.Packet {
	name := strconv.Itoa(int(x.Protocol)) // no rule has other protocols than these
	switch x.Protocol {
	case icmp, icmpv6:
		name = "ICMP"
	case tcp:
		name = "TCP"
	case udp:
		name = "UDP"
	case sctp:
		name = "SCTP"
	}
	return policy.Packet{Src: x.Src.Addr(), Dst: x.Dst.Addr(), Protocol: name, Port: x.Dst.Port()}
}

// sleep reports false if the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
