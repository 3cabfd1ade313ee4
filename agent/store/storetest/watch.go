package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// text formats a batch for comparison.
func text(b store.Batch) string {
	var words []string
	for _, e := range b.Events {
		if e.Deleted {
			words = append(words, "-"+e.Key)
		} else {
			words = append(words, e.Key+"="+string(e.Value))
		}
	}
	return strings.Join(words, " ")
}

func testWatch(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s := Context(t), open(t)
	_, from, err := s.List(ctx, "watch/")
	must(t, err)
	Put(t, s, "watch/a", "1")
	Put(t, s, "beside/watch", "1")
	got := make(chan store.Batch, 10)
	done := make(chan error, 1)
	enough := errors.New("enough")
	go func() {
		done <- s.Watch(ctx, "watch/", from, func(b store.Batch) error {
			got <- b
			if strings.HasPrefix(text(b), "-") {
				return enough
			}
			return nil
		})
	}()
	last := from
	other := open(t)
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "watch/a=1"},
		{func() { Put(t, other, "watch/a", "2") }, "watch/a=2"},
		{func() {
			must(t, commitAll(ctx, other, []store.Op{{Key: "watch/a", Expect: want(t, s, "watch/a", "2").Revision}}))
		}, "-watch/a"},
	} {
		step.do()
		b := receive(t, got)
		if text(b) != step.want || b.Revision <= last {
			t.Fatalf("step %d: got %q at %d after %d, want %q", i, text(b), b.Revision, last, step.want)
		}
		last = b.Revision
	}
	if err := <-done; !errors.Is(err, enough) {
		t.Errorf("the watch ended with %v", err)
	}
	for range 10 { // end the watch in each possible way
		short, cancel := context.WithCancel(ctx)
		time.AfterFunc(20*time.Millisecond, cancel)
		began := time.Now()
		err := s.Watch(short, "watch/", last, func(store.Batch) error { return nil })
		if took := time.Since(began); !errors.Is(err, context.Canceled) || took > 8*time.Second {
			t.Errorf("the watch ended after %v with %v", took, err)
		}
	}
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(kerneltest.Slow(30 * time.Second)):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

// testWhole checks that a transaction's changes arrive together, however large they are.
func testWhole(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s := Context(t), open(t)
	_, from, err := s.List(ctx, "whole/")
	must(t, err)
	const rounds, keys = 20, 100
	written := make(chan struct{}) // the last event may arrive before the commit returns
	defer func() { <-written }()
	go func() {
		defer close(written)
		was := int64(0)
		for r := range rounds {
			var ops []store.Op
			for k := range keys {
				value := fmt.Appendf(nil, "%d %s", r, strings.Repeat("x", 5000))
				ops = append(ops, store.Op{Key: fmt.Sprintf("whole/%d", k), Value: value, Expect: was})
			}
			var err error
			if was, err = s.Commit(ctx, ops...); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	next := 0 // a batch may contain several transactions
	enough := errors.New("enough")
	err = open(t).Watch(ctx, "whole/", from, func(b store.Batch) error {
		round, _, _ := strings.Cut(string(b.Events[0].Value), " ")
		n, err := strconv.Atoi(round)
		if err != nil || n < next || len(b.Events) != keys {
			t.Errorf("after round %d there are %d of %d changes of round %q", next-1, len(b.Events), keys, round)
		}
		for _, e := range b.Events {
			if !strings.HasPrefix(string(e.Value), round+" ") {
				t.Errorf("round %s has %s=%.10s", round, e.Key, e.Value)
			}
		}
		if next = n + 1; next == rounds {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("the watch ended with %v", err)
	}
}

func testHold(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s, other := Context(t), open(t), open(t)
	life, end := context.WithCancel(ctx)
	held, err := s.Hold(life, "hold/a", []byte("me"), 2*time.Second)
	must(t, err)
	if e := want(t, other, "hold/a", "me"); e.Revision != held.Revision {
		t.Errorf("the key has revision %d, Hold returned %d", e.Revision, held.Revision)
	}
	_, err = other.Hold(ctx, "hold/a", []byte("you"), 2*time.Second)
	wantConflict(t, err, "hold/a")
	time.Sleep(3 * time.Second)
	want(t, other, "hold/a", "me")
	end()
	kerneltest.Until(t, func() bool {
		_, err = other.Hold(ctx, "hold/a", []byte("you"), 2*time.Second)
		return err == nil
	})
	want(t, s, "hold/a", "you")
	select {
	case <-held.Lost:
		t.Error("a released key counts as lost")
	default:
	}
	testRelease(t, s, other)
	must(t, other.Close())
	kerneltest.Until(t, func() bool { _, err := s.Get(ctx, "hold/a"); return err != nil })
	must(t, other.Close())
	if _, err := other.Get(ctx, "hold/a"); err == nil {
		t.Error("a closed store answers")
	}
}

// testRelease deletes a held key. Its holder can claim it again, and a late Release leaves the new key.
func testRelease(t *testing.T, s, other store.Store) {
	t.Helper()
	ctx := Context(t)
	first, err := s.Hold(ctx, "hold/b", []byte("1"), 2*time.Second)
	must(t, err)
	must(t, commitAll(ctx, other, []store.Op{{Key: "hold/b", Expect: first.Revision}}))
	first.Release()
	second, err := s.Hold(ctx, "hold/b", []byte("2"), 2*time.Second)
	must(t, err)
	if second.Revision <= first.Revision {
		t.Errorf("the new key has revision %d after %d", second.Revision, first.Revision)
	}
	first.Release()
	if e := want(t, other, "hold/b", "2"); e.Revision != second.Revision {
		t.Errorf("the key has revision %d, Hold returned %d", e.Revision, second.Revision)
	}
	must(t, commitAll(ctx, other, []store.Op{{Key: "hold/b", Expect: second.Revision, Value: []byte("somebody else's")}}))
	second.Release()
	want(t, other, "hold/b", "somebody else's")
}
