package store

import (
	"reflect"
	"testing"
)

// TestNoEventIsDeliveredTwice checks that changes between the first prefix's list and another's are not delivered twice, except
// deletions.
func TestNoEventIsDeliveredTwice(t *testing.T) {
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
