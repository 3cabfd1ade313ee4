package e2e

import (
	"sync"
	"time"
)

// result is what a client's case came to.
type result struct {
	client, version, lists, name string
	said                         string // "passed", "failed", or why it was not asked
	took                         time.Duration
}

// results gathers them, of clients that run at once.
type results struct {
	mu    sync.Mutex
	rows  []result
	calls map[string]string // what a client asks of plugins in a pod's life
}

func (r *results) add(row result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row)
}

func (r *results) asked(client, calls string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[client] = calls
}
