package libcni

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/cni"
)

// adding knows which attachments a GC must leave though its caller does not list
// them: those whose ADD is at work, or ended while the GC was.
type adding struct {
	mu    sync.Mutex
	now   map[added]int
	since []added // ended, with success, while a GC was at work
	gcs   int     // at work
}

type added struct {
	network string
	cni.Attachment
}

// begin notes an ADD; the returned function notes its end.
func (a *adding) begin(what added) (end func(err error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil {
		a.now = map[added]int{}
	}
	a.now[what]++
	return func(err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.now[what]--; a.now[what] == 0 {
			delete(a.now, what)
		}
		if err == nil && a.gcs > 0 {
			a.since = append(a.since, what)
		}
	}
}

// watch notes a GC; the returned function its end.
func (a *adding) watch() (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gcs++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.gcs--; a.gcs == 0 {
			a.since = nil
		}
	}
}

// of are a network's.
func (a *adding) of(network string) (list []cni.Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
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
