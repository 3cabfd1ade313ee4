package store

import (
	"maps"
	"slices"
	"strings"
)

// maxHistory limits the number of events that a process keeps for watches.
const maxHistory = 1 << 16

// state is a process's copy of the store, with the recent changes.
type state struct {
	entries  map[string]Entry
	revision int64
	live     int64 // size of all keys and values in bytes

	history []Batch
	events  int   // in history
	floor   int64 // history is complete after this revision
	lineage int64 // grows each time the file was replaced by an older backup
}

func newState() *state { return &state{entries: map[string]Entry{}} }

// apply applies a transaction.
func (s *state) apply(r record) {
	b := Batch{Revision: r.revision}
	for _, c := range r.changes {
		if c.deleted {
			s.drop(c.Key)
			b.Events = append(b.Events, Event{Entry: Entry{Key: c.Key, Revision: r.revision}, Deleted: true})
		} else {
			s.put(c.Entry)
			b.Events = append(b.Events, Event{Entry: c.Entry})
		}
	}
	s.revision = r.revision
	s.remember(b)
}

func (s *state) put(e Entry) {
	s.drop(e.Key)
	s.entries[e.Key] = e
	s.live += int64(len(e.Key) + len(e.Value))
}

func (s *state) drop(key string) {
	if old, ok := s.entries[key]; ok {
		s.live -= int64(len(key) + len(old.Value))
		delete(s.entries, key)
	}
}

func (s *state) remember(b Batch) {
	s.history = append(s.history, b)
	s.events += len(b.Events)
	for s.events > maxHistory && len(s.history) > 1 {
		s.floor = s.history[0].Revision
		s.events -= len(s.history[0].Events)
		s.history = s.history[1:]
	}
}

// replace applies a snapshot. The differences become one batch. A snapshot that is older than the state comes from a
// backup: the history does not lead to it.
func (s *state) replace(r record, first bool) {
	old := s.entries
	s.entries, s.live = map[string]Entry{}, 0
	b := Batch{Revision: r.revision}
	for _, c := range r.changes {
		s.put(c.Entry)
		if was, ok := old[c.Key]; !ok || was.Revision != c.Revision {
			b.Events = append(b.Events, Event{Entry: c.Entry})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if _, ok := s.entries[key]; !ok {
			b.Events = append(b.Events, Event{Entry: Entry{Key: key, Revision: r.revision}, Deleted: true})
		}
	}
	if r.revision < s.revision {
		s.history, s.events, first = nil, 0, true
		s.lineage++
	}
	s.revision = r.revision
	if first {
		s.floor = r.revision
	} else if len(b.Events) > 0 {
		s.remember(b)
	}
}

// snapshot returns the whole content as one record.
func (s *state) snapshot() record {
	r := record{kind: kindSnapshot, revision: s.revision}
	for _, e := range s.list("") {
		r.changes = append(r.changes, change{Entry: e})
	}
	return r
}

func (s *state) list(prefix string) []Entry {
	var out []Entry
	for key, e := range s.entries {
		if strings.HasPrefix(key, prefix) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// since returns the batches after a revision, with the events below a prefix. It returns ErrCompacted if the history
// does not reach back that far, and ErrRestored for a revision that the store has not reached.
func (s *state) since(prefix string, after int64) (out []Batch, err error) {
	if after > s.revision {
		return nil, ErrRestored
	}
	if after < s.floor {
		return nil, ErrCompacted
	}
	i, _ := slices.BinarySearchFunc(s.history, after+1, func(b Batch, r int64) int { return int(min(max(b.Revision-r, -1), 1)) })
	for _, b := range s.history[i:] {
		some := Batch{Revision: b.Revision}
		for _, e := range b.Events {
			if strings.HasPrefix(e.Key, prefix) && e.Revision > after {
				some.Events = append(some.Events, e)
			}
		}
		if len(some.Events) > 0 {
			out = append(out, some)
		}
	}
	return out, nil
}

// conflicts returns a ConflictError if keys are not at the revisions that a transaction expects.
func (s *state) conflicts(ops []Op) error {
	var keys []string
	for _, o := range ops {
		if o.Below && s.hasNewer(o.Key, o.Expect) || !o.Below && s.entries[o.Key].Revision != o.Expect {
			keys = append(keys, o.Key)
		}
	}
	if keys != nil {
		return &ConflictError{keys}
	}
	return nil
}

func (s *state) hasNewer(prefix string, revision int64) bool {
	for key, e := range s.entries {
		if e.Revision > revision && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// transaction returns the record that a commit appends.
func (s *state) transaction(ops []Op) record {
	r := record{revision: s.revision + 1}
	for _, o := range ops {
		switch {
		case o.isCheck():
		case o.Value != nil:
			r.changes = append(r.changes, change{Entry: Entry{o.Key, append([]byte{}, o.Value...), r.revision}})
		case o.Expect != 0:
			r.changes = append(r.changes, change{Entry: Entry{Key: o.Key}, deleted: true})
		}
	}
	return r
}
