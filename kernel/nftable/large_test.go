package nftable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// TestLargeTable writes a table of 20,000 elements and 500 chains, and changes what replaces it in one transaction.
func TestLargeTable(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	want, p := large(rounds(500), 40), open(t)
	sync(t, p, want)
	if found := sync(t, open(t), want); found != nil {
		t.Errorf("found %q", found)
	}
	want.Chains["forward"].Hook = "type filter hook forward priority 10"
	if found := sync(t, p, want); len(found) != 1 || !strings.HasPrefix(found[0], "chain forward: hook") {
		t.Errorf("found %q", found)
	}
	if found := sync(t, open(t), want); found != nil {
		t.Errorf("found %q", found)
	}
}

// TestEndedContext checks that nothing is written when the context has ended.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	p, want := open(t), everything()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Sync(ctx, want); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync: %v", err)
	}
	sync(t, p, want)
	delete(want.Sets["pods4"].Elements, "10.1.0.5")
	changes := nftable.Changes{Keys: map[string]map[string]bool{"pods4": {"10.1.0.5": true}}}
	if _, err := p.Apply(ctx, want, changes); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply: %v", err)
	}
	if s := listed(t, "", want); !strings.Contains(s, "10.1.0.5\n") {
		t.Errorf("the element is gone:\n%s", s)
	}
}

// TestNextToOtherTable keeps a table while another programmer changes its own table all the time, which interrupts the
// lists of ours.
func TestNextToOtherTable(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	other, busy := everything(), open(t)
	sync(t, busy, other)
	stop, done := make(chan struct{}), make(chan error)
	go func() { done <- changeUntil(t.Context(), stop, busy, other) }()
	w, p := newWorld(7), open(t)
	for range rounds(200) {
		w.begin()
		w.step()
		if _, err := p.Apply(t.Context(), w.table, w.changes); err != nil {
			t.Error(err)
		}
		if found := sync(t, p, w.table); found != nil {
			t.Errorf("found %q", found)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if found := sync(t, busy, other); found != nil {
		t.Errorf("the other table: found %q", found)
	}
}

// changeUntil adds an element and deletes it, again and again.
func changeUntil(ctx context.Context, stop chan struct{}, p *nftable.Programmer, table *nftable.Table) error {
	elements := table.Sets["pods4"].Elements
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if delete(elements, "10.9.9.9"); n%2 == 0 {
			elements["10.9.9.9"] = ""
		}
		if found, err := p.Apply(ctx, table, nftable.Changes{Keys: map[string]map[string]bool{"pods4": {"10.9.9.9": true}}}); err != nil || found != nil {
			return fmt.Errorf("change %d: found %q: %v", n, found, err)
		}
	}
}
