// Package sourcetest has a follower for tests.
package sourcetest

import (
	"sync"
	"testing"

	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Recorder is a follower that records what it received. Read its fields in the condition of Sees.
type Recorder struct {
	mu       sync.Mutex
	Entries  map[string]source.Entry // the last entry of each key since the last Reset; deleted keys have one
	Changes  map[string]int          // number of changes of each key
	Resets   int
	Restores int
	IsAway   bool
}

// NewRecorder returns a Recorder.
func NewRecorder() *Recorder { return &Recorder{Changes: map[string]int{}} }

// Sees waits until a condition holds.
func (r *Recorder) Sees(t *testing.T, condition func() bool) {
	t.Helper()
	kerneltest.Until(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return condition() })
}

// Reset implements source.Follower.
func (r *Recorder) Reset(list []source.Entry, _ int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Resets++
	r.Entries = map[string]source.Entry{}
	for _, e := range list {
		r.Entries[e.Key] = e
	}
}

// Change implements source.Follower.
func (r *Recorder) Change(b source.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range b.Entries {
		r.Changes[e.Key]++
		r.Entries[e.Key] = e
	}
}

// Restored implements store.RestoreFollower.
func (r *Recorder) Restored() { r.mu.Lock(); defer r.mu.Unlock(); r.Restores++ }

// Disconnected implements source.Follower.
func (r *Recorder) Disconnected(error) { r.mu.Lock(); defer r.mu.Unlock(); r.IsAway = true }

// Reconnected implements source.Follower.
func (r *Recorder) Reconnected() { r.mu.Lock(); defer r.mu.Unlock(); r.IsAway = false }
