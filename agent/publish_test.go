package agent

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
)

// TestPublisherWakes checks that the publisher wakes for a changed document and for the first sync, because nothing
// could be written before.
func TestPublisherWakes(t *testing.T) {
	t.Parallel()
	v := newStoreCache(filepath.Join(t.TempDir(), "snapshot"), func() {}, slog.New(slog.DiscardHandler))
	p := &publisher{storeCache: v, wake: make(chan struct{}, 1)}
	node := func(version string) *cluster.Node { return &cluster.Node{Name: "a", Version: version} }
	for _, step := range []struct {
		what  string
		do    func()
		wakes bool
	}{
		{"the first document", func() { p.setNode(node("1")) }, true},
		{"the same again", func() { p.setNode(node("1")) }, false},
		{"the same, after the first sync", func() { v.Reset(nil, 1); p.setNode(node("1")) }, true},
		{"the same once more", func() { p.setNode(node("1")) }, false},
		{"another version", func() { p.setNode(node("2")) }, true},
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
