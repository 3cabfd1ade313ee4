package agent

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
)

// The publisher is woken by what differs, and by the store's first word: what was wanted
// before could not be written.
func TestPublisherWakes(t *testing.T) {
	t.Parallel()
	v := newView(filepath.Join(t.TempDir(), "snapshot"), func() {}, slog.New(slog.DiscardHandler))
	p := &publisher{view: v, wake: make(chan struct{}, 1)}
	node := func(version string) *cluster.Node { return &cluster.Node{Name: "a", Version: version} }
	for _, step := range []struct {
		what  string
		do    func()
		wakes bool
	}{
		{"the first look", func() { p.wants(node("1")) }, true},
		{"the same again", func() { p.wants(node("1")) }, false},
		{"the same, when the store was heard", func() { v.Reset(nil, 1); p.wants(node("1")) }, true},
		{"the same once more", func() { p.wants(node("1")) }, false},
		{"another version", func() { p.wants(node("2")) }, true},
	} {
		step.do()
		woken := false
		select {
		case <-p.wake:
			woken = true
		default:
		}
		if woken != step.wakes {
			t.Errorf("%s: the publisher was woken: %t, want %t", step.what, woken, step.wakes)
		}
	}
}
