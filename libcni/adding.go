package libcni

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cni"
)

// adding knows which attachments a GC must leave though its caller does not list
// them: those whose ADD is at work, or ended while the GC was. And it keeps a GC's
// DEL of a stale attachment and what the caller does with the same apart.
type adding struct {
	mu      sync.Mutex
	changed sync.Cond // its L is mu
	now     map[added]int
	since   []added        // ended, with success, while a GC was at work
	stale   map[added]bool // a GC is at its DEL
	gcs     int            // at work
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

// begin notes an ADD, or a DEL of the caller's, once no GC is at the attachment;
// the returned function notes its end.
func (a *adding) begin(what added, add bool) (end func(err error)) {
	defer a.lock()()
	for a.stale[what] {
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
	}
}

// collect notes a GC's DEL of a stale attachment, unless the caller is at it, or
// has added it since the GC began.
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

// watch notes a GC; the returned function its end.
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

// of are a network's.
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

// spared are the attachments that a GC which began then must leave: the valid
// ones, and what was added meanwhile, by this process or by another one that
// has the same cache.
func (c *CNIConfig) spared(network string, valid []cni.Attachment, began time.Time) ([]cni.Attachment, error) {
	list := append([]cni.Attachment{}, valid...) // not null in JSON
	young, err := c.cachedAttachments("", began)
	more := c.adding.of(network)
	for _, a := range young {
		if a.Network == network {
			more = append(more, cni.Attachment{ContainerID: a.ContainerID, IfName: a.IfName})
		}
	}
	for _, a := range more {
		if !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list, err
}
