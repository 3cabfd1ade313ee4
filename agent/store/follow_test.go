package store

import (
	"reflect"
	"testing"
)

// Lists are of revisions that differ: what happened between the first one's and
// another's is not told again, but that a key is gone, which the follower may have
// from elsewhere.
func TestNewsOfPart(t *testing.T) {
	t.Parallel()
	put := func(key string) Event { return Event{Entry: Entry{Key: key}} }
	gone := func(key string) Event { return Event{Entry: Entry{Key: key}, Deleted: true} }
	p := &part{listed: 10, keys: map[string]bool{"a": true}}
	for _, c := range []struct {
		revision    int64
		events, say []Event
	}{
		{8, []Event{put("a"), put("b")}, []Event{}},
		{9, []Event{gone("a"), gone("b")}, []Event{gone("b")}},
		{11, []Event{gone("a"), put("c")}, []Event{gone("a"), put("c")}},
	} {
		if got := p.news(Batch{Revision: c.revision, Events: c.events}).Events; !reflect.DeepEqual(got, c.say) {
			t.Errorf("at %d: %v is told as %v, want %v", c.revision, c.events, got, c.say)
		}
	}
	if p.keys != nil {
		t.Error("the list's keys are kept for ever")
	}
}
