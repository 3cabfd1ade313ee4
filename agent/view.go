package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// view is what this node knows of the store. It is kept on disk, so that a host
// that starts while the store is away knows what it knew before.
type view struct {
	mu       sync.RWMutex
	snapshot *cluster.Snapshot
	raw      map[string]store.Entry // what is kept on disk
	known    bool
	lists    int // how often the store said all of it, since this agent began

	file  string
	dirty bool
	kick  func()
	log   *slog.Logger
}

func newView(file string, kick func(), log *slog.Logger) *view {
	v := &view{snapshot: cluster.NewSnapshot(), raw: map[string]store.Entry{}, file: file, kick: kick, log: log}
	v.load()
	return v
}

// read calls f with the present snapshot, which it must not keep; false if nothing
// was ever known.
func (v *view) read(f func(*cluster.Snapshot)) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.known {
		f(v.snapshot)
	}
	return v.known
}

// isFresh tells whether the store itself was heard.
func (v *view) isFresh() bool {
	return v.listed() > 0
}

// listed is how often the store said all: each time it may be another than before.
func (v *view) listed() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.lists
}

// entry is a key as the view has it; Revision 0 if it is not there.
func (v *view) entry(key string) store.Entry {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.raw[key]
}

// Reset implements store.Follower.
func (v *view) Reset(entries []store.Entry, revision int64) {
	v.mu.Lock()
	s := cluster.NewSnapshot()
	s.Revision = revision
	v.raw = map[string]store.Entry{}
	for _, e := range entries {
		v.take(s, e)
	}
	s.Keep(v.snapshot)
	v.snapshot, v.known, v.dirty = s, true, true
	v.lists++
	v.mu.Unlock()
	v.kick()
}

// Change implements store.Follower.
func (v *view) Change(b store.Batch) {
	v.mu.Lock()
	kept, matters := false, false
	for _, e := range b.Events {
		if e.Deleted {
			e.Value = nil
		}
		v.take(v.snapshot, e.Entry)
		kept = kept || cluster.IsFollowed(e.Key)
		matters = matters || moves(v.snapshot, e.Key)
	}
	v.snapshot.Revision = max(v.snapshot.Revision, b.Revision)
	v.dirty = v.dirty || kept
	v.mu.Unlock()
	if matters {
		v.kick()
	}
}

// moves tells whether other objects may follow from a key that changed: not from an
// address of a network that the cluster does not have, as whereabouts' are, of which
// there may be hundreds a second.
func moves(s *cluster.Snapshot, key string) bool {
	if rest, is := strings.CutPrefix(key, cluster.AddressesPrefix); is {
		network, _, _ := strings.Cut(rest, "/")
		return s.Networks[network] != nil
	}
	return cluster.IsFollowed(key)
}

// Away implements store.Follower.
func (v *view) Away(err error) {
	v.log.Warn("the store cannot be reached; what was known of it counts", "error", err)
	v.kick()
}

// Back implements store.Follower.
func (v *view) Back() {
	v.log.Info("the store answers again")
	v.kick()
}

// take takes a key's value, nil for one that is gone.
func (v *view) take(s *cluster.Snapshot, e store.Entry) {
	if !cluster.IsFollowed(e.Key) {
		return
	}
	s.Set(e.Key, e.Value)
	if e.Value == nil {
		delete(v.raw, e.Key)
	} else {
		v.raw[e.Key] = e
	}
}

// saveEvery is how often at most what changed is written to disk; of a large cluster
// it is more seldom, so that no more than a hundredth of the time goes into it.
const (
	saveEvery = time.Second
	saveShare = 100
)

// keepOnDisk writes what is known to disk until the context ends.
func (v *view) keepOnDisk(ctx context.Context) {
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

func (v *view) save() {
	v.mu.Lock()
	if !v.dirty {
		v.mu.Unlock()
		return
	}
	list := make([]store.Entry, 0, len(v.raw))
	for _, e := range v.raw {
		list = append(list, e)
	}
	v.dirty = false
	v.mu.Unlock()
	raw, err := json.Marshal(list)
	if err == nil {
		err = local.Replace(v.file, raw, 0o600)
	}
	if err != nil {
		v.log.Warn("what is known of the store was not kept", "error", err)
		v.mu.Lock()
		v.dirty = true
		v.mu.Unlock()
	}
}

// load reads what save wrote. A damaged file is as none: the store will tell.
func (v *view) load() {
	raw, err := os.ReadFile(v.file)
	if err != nil {
		return
	}
	var list []store.Entry
	if json.Unmarshal(raw, &list) != nil {
		return
	}
	for _, e := range list {
		v.take(v.snapshot, e)
	}
	v.known = true
}
