package agent

import (
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
)

// TestPublisherWakes checks that the publisher wakes for a changed document and for the first sync, because nothing
// could be written before.
func TestPublisherWakes(t *testing.T) {
	t.Parallel()
	p := &publisher{wake: make(chan struct{}, 1)}
	node := func(version string) *cluster.Node { return &cluster.Node{Name: "a", Version: version} }
	for _, step := range []struct {
		what  string
		do    func()
		wakes bool
	}{
		{"the first document", func() { p.setNode(node("1"), false) }, true},
		{"the same again", func() { p.setNode(node("1"), false) }, false},
		{"the same, after the first sync", func() { p.setNode(node("1"), true) }, true},
		{"the same once more", func() { p.setNode(node("1"), true) }, false},
		{"another version", func() { p.setNode(node("2"), true) }, true},
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
