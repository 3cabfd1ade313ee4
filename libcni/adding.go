package libcni

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cni"
)

// adding knows which attachments a GC must keep although its caller does not list them: those whose ADD is in progress,
// or ended during the GC. It also keeps a DEL of a stale attachment, by a GC or after a cancelled ADD, apart from the
// caller's operations on it.
type adding struct {
	mu      sync.Mutex
	changed sync.Cond // its L is mu
	now     map[added]int
	since   []added        // ADDs that succeeded during a GC
	stale   map[added]bool // attachments that a GC or a cancelled ADD is deleting
	gcs     int            // number of GCs in progress
}

type added struct {
	network string
	cni.Attachment
}

func (n network) attached(rt *RuntimeConf) added {
	return added{n.name, cni.Attachment{ContainerID: rt.ContainerID, IfName: rt.IfName}}
}

func (a *adding) lock() (unlock func()) {
	a.mu.Lock()
	a.changed.L = &a.mu
	return a.mu.Unlock
}

// begin notes an ADD, or a DEL by the caller, once nobody is deleting the attachment as stale. It fails if the context ends
// before. The returned function notes the end.
func (a *adding) begin(ctx context.Context, what added, add bool) (end func(err error), err error) {
	defer a.lock()()
	if a.stale[what] {
		defer context.AfterFunc(ctx, func() {
			defer a.lock()()
			a.changed.Broadcast()
		})()
	}
	for a.stale[what] {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("a GC or a cancelled ADD is deleting this attachment: %w", context.Cause(ctx))
		}
		a.changed.Wait()
	}
	if a.now == nil {
		a.now = map[added]int{}
	}
	a.now[what]++
	return func(err error) {
		defer a.lock()()
		if a.now[what]--; a.now[what] == 0 {
			delete(a.now, what)
		}
		if add && err == nil && a.gcs > 0 {
			a.since = append(a.since, what)
		}
	}, nil
}

// collect notes a DEL of a stale attachment, unless the caller is working on it or has added it since a GC started.
func (a *adding) collect(what added) (end func(), ok bool) {
	defer a.lock()()
	if a.now[what] > 0 || a.stale[what] || slices.Contains(a.since, what) {
		return nil, false
	}
	if a.stale == nil {
		a.stale = map[added]bool{}
	}
	a.stale[what] = true
	return func() {
		defer a.lock()()
		delete(a.stale, what)
		a.changed.Broadcast()
	}, true
}

// watch notes a GC; the returned function notes its end.
func (a *adding) watch() (end func()) {
	defer a.lock()()
	a.gcs++
	return func() {
		defer a.lock()()
		if a.gcs--; a.gcs == 0 {
			a.since = nil
		}
	}
}

// of returns a network's attachments.
func (a *adding) of(network string) (list []cni.Attachment) {
	defer a.lock()()
	for what := range a.now {
		if what.network == network {
			list = append(list, what.Attachment)
		}
	}
	for _, what := range a.since {
		if what.network == network {
			list = append(list, what.Attachment)
		}
	}
	return list
}

// kept returns the attachments that a GC must keep: the valid ones, and those added since it started by this process or
// by another one with the same cache.
func (c *CNIConfig) kept(network string, valid []cni.Attachment, began time.Time) ([]cni.Attachment, error) {
	list := append([]cni.Attachment{}, valid...) // not null in JSON
	young, err := c.cachedAttachments("", began)
	more := c.adding.of(network)
	for _, a := range young {
		if a.Network == network {
			more = append(more, cni.Attachment{ContainerID: a.ContainerID, IfName: a.IfName})
		}
	}
	known := setOf(list)
	for _, a := range more {
		if !known[a] {
			known[a], list = true, append(list, a)
		}
	}
	return list, err
}

func setOf(list []cni.Attachment) map[cni.Attachment]bool {
	set := make(map[cni.Attachment]bool, len(list))
	for _, a := range list {
		set[a] = true
	}
	return set
}
