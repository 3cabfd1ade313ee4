package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
)

// storeCache is this node's copy of the store. It is saved to disk, so that a host that boots without the store can use
// its last known state.
type storeCache struct {
	mu       sync.RWMutex
	snapshot *cluster.Snapshot
	revision map[string]int64 // of each key
	known    bool
	lists    int // how often the store was listed since the agent started
	away     bool

	file  string
	dirty bool
	saved string // the error of the last save; "": none
	kick  func()
	log   *slog.Logger
}

func newStoreCache(file string, kick func(), log *slog.Logger) *storeCache {
	v := &storeCache{snapshot: cluster.NewSnapshot(), revision: map[string]int64{}, file: file, kick: kick, log: log}
	v.load()
	return v
}

// read calls f with the current snapshot, which f must not retain. It returns false, without a call, if nothing is
// known yet.
func (v *storeCache) read(f func(*cluster.Snapshot)) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.known {
		f(v.snapshot)
	}
	return v.known
}

// synced reports whether this agent has read the store itself, not only the saved copy.
func (v *storeCache) synced() bool {
	return v.resyncs() > 0
}

// resyncs returns how often the store was listed. After each listing it may have been restored from a backup.
func (v *storeCache) resyncs() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.lists
}

// revisionOf returns the revision of a key; 0 if it does not exist.
func (v *storeCache) revisionOf(key string) int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.revision[key]
}

// Reset implements source.Follower.
func (v *storeCache) Reset(entries []source.Entry, revision int64) {
	v.mu.Lock()
	s := cluster.NewSnapshot()
	s.Revision = revision
	v.revision = map[string]int64{}
	for _, e := range entries {
		v.take(s, e)
	}
	s.Keep(v.snapshot)
	v.snapshot, v.known, v.dirty = s, true, true
	v.lists++
	v.mu.Unlock()
	v.kick()
}

// Change implements source.Follower.
func (v *storeCache) Change(b source.Batch) {
	v.mu.Lock()
	kept, matters := false, false
	for _, e := range b.Entries {
		v.take(v.snapshot, e)
		kept = kept || cluster.IsFollowed(e.Key)
		matters = matters || affectsObjects(v.snapshot, e.Key)
	}
	v.snapshot.Revision = max(v.snapshot.Revision, b.Revision)
	v.dirty = v.dirty || kept
	v.mu.Unlock()
	if matters {
		v.kick()
	}
}

// affectsObjects reports whether a changed key can change the desired objects. Addresses of unknown networks cannot:
// whereabouts ranges may change hundreds of times a second.
func affectsObjects(s *cluster.Snapshot, key string) bool {
	if rest, is := strings.CutPrefix(key, cluster.AddressesPrefix); is {
		network, _, _ := strings.Cut(rest, "/")
		return s.Networks[network] != nil
	}
	return cluster.IsFollowed(key)
}

// Disconnected implements source.Follower.
func (v *storeCache) Disconnected(err error) {
	if v.isAway(true) {
		return // it was logged
	}
	v.log.Warn("the store cannot be reached; continuing with its last known state", "error", err)
	v.kick()
}

// Reconnected implements source.Follower.
func (v *storeCache) Reconnected() {
	v.isAway(false)
	v.log.Info("the store can be reached again")
	v.kick()
}

// isAway notes whether the store is away, and returns whether it was.
func (v *storeCache) isAway(now bool) (before bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.away = v.away, now
	return before
}

// take stores an entry.
func (v *storeCache) take(s *cluster.Snapshot, e source.Entry) {
	if !cluster.IsFollowed(e.Key) {
		return
	}
	s.Put(e.Key, e.Document, e.Problem)
	if e.Deleted {
		delete(v.revision, e.Key)
	} else {
		v.revision[e.Key] = e.Revision
	}
}

// saveEvery is the minimum interval between saves. In a large cluster it grows, so that saving takes at most
// 1/saveShare of the time.
const (
	saveEvery = time.Second
	saveShare = 100
)

// keepOnDisk saves changes to disk until the context ends.
func (v *storeCache) keepOnDisk(ctx context.Context) {
	t := time.NewTimer(saveEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			v.save()
			return
		case <-t.C:
			began := time.Now()
			v.save()
			t.Reset(max(saveEvery, saveShare*time.Since(began)))
		}
	}
}

func (v *storeCache) save() {
	v.mu.Lock()
	if !v.dirty {
		v.mu.Unlock()
		return
	}
	docs, revision := v.snapshot.Documents(), maps.Clone(v.revision)
	v.dirty = false
	v.mu.Unlock()
	raw, err := encode(docs, revision)
	if err == nil {
		err = local.Replace(v.file, raw, 0o600)
	}
	if text := errText(err); text != v.saved {
		v.saved = text
		if err != nil {
			v.log.Warn("cannot save the cached state of the store", "error", err)
		}
	}
	if err != nil {
		v.mu.Lock()
		v.dirty = true
		v.mu.Unlock()
	}
}

// encode returns the text of a file of documents.
func encode(docs map[string]cluster.Document, revision map[string]int64) ([]byte, error) {
	list := make([]store.Entry, 0, len(docs))
	for key, d := range docs {
		value, err := cluster.Encode(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		list = append(list, store.Entry{Key: key, Value: value, Revision: revision[key]})
	}
	return json.Marshal(list)
}

// load reads the file that save wrote. It ignores a damaged file, because the store will be read anyway.
func (v *storeCache) load() {
	raw, err := os.ReadFile(v.file)
	if err != nil {
		return
	}
	var list []store.Entry
	if json.Unmarshal(raw, &list) != nil {
		return
	}
	for _, e := range source.DecodeAll(list) {
		v.take(v.snapshot, e)
	}
	v.known = true
}
