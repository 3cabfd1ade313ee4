package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/source"
)

// conditions records the conditions that an agent sets.
type conditions struct {
	set   []bool
	why   string
	since time.Time
}

func (c *conditions) SetNetworkUnavailable(_ context.Context, _ string, unavailable bool, since time.Time, _, why string) error {
	c.set, c.why, c.since = append(c.set, unavailable), why, since
	return nil
}

// TestCondition checks when an agent reports its node's network as unavailable: not while it starts, once when it has not
// been ready for a while, and again if somebody else changed the condition.
func TestCondition(t *testing.T) {
	t.Parallel()
	var c conditions
	cache := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, slog.New(slog.DiscardHandler))
	p := &publisher{storeCache: cache, conf: &config.Config{Node: "a"}, status: newStatus("a"), conditions: &c}
	inStore := func(condition string) {
		t.Helper()
		n := &cluster.Node{Name: "a", NetworkUnavailable: condition}
		cache.Reset([]source.Entry{{Key: n.Key(), Revision: 1, Document: n}}, 1)
	}
	ready := func(err error) { p.status.reconciled, p.status.inStore, p.status.reconcileErr = true, true, err }
	for _, step := range []struct {
		what      string
		condition string
		do        func()
		want      []bool
	}{
		{"an agent that starts", "", func() {}, nil},
		{"ready", "", func() { ready(nil) }, []bool{false}},
		{"still ready", "False", func() {}, nil},
		{"unready for a moment", "False", func() { ready(errors.New("no link")) }, nil},
		{"unready for long", "False", func() { p.unready = time.Now().Add(-unreadyFor) }, []bool{true}},
		{"unready, and reported", "True", func() {}, nil},
		{"unready for another reason", "True", func() { ready(errors.New("no address")) }, nil},
		{"unready for another reason, for a while", "True", func() { p.reasonAt = time.Now().Add(-unreadyFor) }, []bool{true}},
		{"that reason, for a while", "True", func() { p.reasonAt = time.Now().Add(-unreadyFor) }, nil},
		{"ready again", "True", func() { ready(nil) }, []bool{false}},
		{"another program's condition", "True", func() {}, []bool{false}},
	} {
		inStore(step.condition)
		step.do()
		c.set = nil
		if err := p.condition(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(c.set) != len(step.want) || len(c.set) == 1 && c.set[0] != step.want[0] {
			t.Errorf("%s: the agent set %v, want %v", step.what, c.set, step.want)
		}
		if len(c.set) == 1 && c.set[0] && (c.why != p.status.NotReady().Error() || c.since != p.unready) {
			t.Errorf("%s: the agent reported %q since %v", step.what, c.why, c.since)
		}
	}
	p.conditions = nil
	if err := p.condition(t.Context()); err != nil {
		t.Errorf("a store without conditions: %v", err)
	}
}
