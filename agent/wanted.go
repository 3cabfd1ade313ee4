package agent

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// wantedNetworks are the isolated networks that plugins wait for. A container gets its address in the network's namespace,
// so the namespace must exist before this node has an address of the network.
type wantedNetworks struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// wantedFor ends the wait for a network that gets no address, because its plugin failed.
const wantedFor = 5 * time.Minute

// add reports whether the network was not wanted before.
func (w *wantedNetworks) add(network string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, was := w.until[network]
	if w.until == nil {
		w.until = map[string]time.Time{}
	}
	w.until[network] = time.Now().Add(wantedFor)
	return !was
}

// remove removes a network that has addresses on this node now.
func (w *wantedNetworks) remove(network string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.until, network)
}

// names returns the networks, sorted.
func (w *wantedNetworks) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.until, func(_ string, end time.Time) bool { return time.Now().After(end) })
	return slices.Sorted(maps.Keys(w.until))
}
