// Package storetest is the test suite that every store must pass.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Run runs the suite. Each call of open returns another handle on the same store, as another process would have. Each
// test uses its own key prefix.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	for name, f := range map[string]func(*testing.T, func(testing.TB) store.Store){
		"get and commit": testCommit, "transactions": testTransactions, "below": testBelow, "bad": testBad, "lists": testLists,
		"watch": testWatch, "watch sees whole transactions": testWhole, "counters": testCounters, "tokens": testTokens,
		"hold": testHold, "follow": testFollow, "follow all": testFollowAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open)
		})
	}
}

// Context returns a context that ends before the test times out.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Put writes a key, whatever its current revision. It tries again for a while if the store is not available: tests end
// members of etcd.
func Put(t testing.TB, s store.Store, key, value string) int64 {
	t.Helper()
	for end := time.Now().Add(kerneltest.Slow(20 * time.Second)); ; {
		was, err := s.Get(Context(t), key)
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		var revision int64
		if err == nil {
			revision, err = s.Commit(Context(t), store.Op{Key: key, Value: []byte(value), Expect: was.Revision})
		}
		switch {
		case errors.Is(err, store.ErrUnavailable) && time.Now().Before(end):
			time.Sleep(100 * time.Millisecond)
		case !errors.Is(err, store.ErrConflict):
			must(t, err)
			return revision
		}
	}
}

func want(t testing.TB, s store.Store, key, value string) store.Entry {
	t.Helper()
	e, err := s.Get(Context(t), key)
	must(t, err)
	if string(e.Value) != value || e.Key != key || e.Revision == 0 {
		t.Fatalf("%s is %+v, want %q", key, e, value)
	}
	return e
}

func wantConflict(t testing.TB, err error, keys ...string) {
	t.Helper()
	c, ok := errors.AsType[*store.ConflictError](err)
	if !ok || !errors.Is(err, store.ErrConflict) || !slices.Equal(c.Keys, keys) {
		t.Fatalf("got %v, want a conflict of %v", err, keys)
	}
}

func testCommit(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s, other := Context(t), open(t), open(t)
	_, err := s.Get(ctx, "commit/a")
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
	_, err = s.Commit(ctx, store.Op{Key: "commit/a", Value: []byte("1")})
	must(t, err)
	first := want(t, other, "commit/a", "1")
	_, err = other.Commit(ctx, store.Op{Key: "commit/a", Value: []byte("2")})
	wantConflict(t, err, "commit/a")
	revision, err := other.Commit(ctx, store.Op{Key: "commit/a", Value: []byte{}, Expect: first.Revision})
	must(t, err)
	second := want(t, s, "commit/a", "")
	if second.Revision <= first.Revision || revision != second.Revision || second.Value == nil {
		t.Errorf("%+v after %+v, at %d", second, first, revision)
	}
	_, err = s.Commit(ctx, store.Op{Key: "commit/a", Expect: first.Revision})
	wantConflict(t, err, "commit/a")
	_, err = s.Commit(ctx, store.Op{Key: "commit/a", Expect: second.Revision})
	must(t, err)
	if _, err := other.Get(ctx, "commit/a"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a deleted key: %v", err)
	}
}

func testTransactions(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s := Context(t), open(t)
	_, err := s.Commit(ctx, store.Op{Key: "txn/a", Value: []byte("1")}, store.Op{Key: "txn/b", Value: []byte("1")}, store.Op{Key: "txn/no", Verify: true})
	must(t, err)
	a, b := want(t, s, "txn/a", "1"), want(t, s, "txn/b", "1")
	if a.Revision != b.Revision {
		t.Errorf("one transaction, two revisions: %d and %d", a.Revision, b.Revision)
	}
	_, err = s.Commit(ctx, store.Op{Key: "txn/a", Value: []byte("2"), Expect: a.Revision}, store.Op{Key: "txn/b", Value: []byte("2"), Expect: a.Revision + 7},
		store.Op{Key: "txn/c", Value: []byte("2")}, store.Op{Key: "txn/no", Verify: true, Expect: 3})
	wantConflict(t, err, "txn/b", "txn/no")
	want(t, s, "txn/a", "1")
	if _, err := s.Get(ctx, "txn/c"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a part of a transaction: %v", err)
	}
	_, err = s.Commit(ctx, store.Op{Key: "txn/a", Expect: a.Revision}, store.Op{Key: "txn/b", Expect: b.Revision, Verify: true}, store.Op{Key: "txn/c", Value: []byte("3")})
	must(t, err)
	want(t, s, "txn/b", "1")
	want(t, s, "txn/c", "3")
	_, err = s.Commit(ctx, store.Op{Key: "txn/b", Expect: b.Revision, Verify: true})
	must(t, err)
}

// testBelow checks that a transaction fails if a key with a prefix was created or changed since a revision.
func testBelow(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s := Context(t), open(t)
	before, err := s.Commit(ctx, store.Op{Key: "below/other", Value: []byte("1")})
	must(t, err)
	below := func(revision int64) error {
		return commitAll(ctx, s, []store.Op{{Key: "below/x/", Below: true, Expect: revision}, {Key: "below", Value: []byte("1")}})
	}
	must(t, below(before))
	must(t, commitAll(ctx, s, []store.Op{{Key: "below", Expect: want(t, s, "below", "1").Revision}}))
	changed, err := s.Commit(ctx, store.Op{Key: "below/x/y", Value: []byte("1")}, store.Op{Key: "below/xy", Value: []byte("1")})
	must(t, err)
	wantConflict(t, below(before), "below/x/")
	if _, err := s.Get(ctx, "below"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a transaction with a failed check wrote: %v", err)
	}
	must(t, below(changed))
	must(t, commitAll(ctx, s, []store.Op{{Key: "below", Expect: want(t, s, "below", "1").Revision}, {Key: "below/x/y", Expect: changed}}))
	must(t, below(before)) // the key is gone
}

func testBad(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s := Context(t), open(t)
	many := make([]store.Op, store.MaxOps+1)
	for i := range many {
		many[i] = store.Op{Key: fmt.Sprintf("bad/%d", i), Value: []byte("x")}
	}
	for name, ops := range map[string][]store.Op{
		"none": {}, "twice": {{Key: "bad/a"}, {Key: "bad/a"}}, "many": many, "empty": {{Key: ""}},
		"slash": {{Key: "bad/"}}, "root": {{Key: "/bad"}}, "zero": {{Key: "b\x00d"}}, "long": {{Key: string(make([]byte, 2000))}},
	} {
		if _, err := s.Commit(ctx, ops...); err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Hold(ctx, "/", nil, time.Second); err == nil {
		t.Error("a hold of no key")
	}
	must(t, commitAll(ctx, s, many[:store.MaxOps]))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := s.List(cancelled, "bad/"); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that nobody waits for: %v", err)
	}
}

func commitAll(ctx context.Context, s store.Store, ops []store.Op) error {
	_, err := s.Commit(ctx, ops...)
	return err
}

func testLists(t *testing.T, open func(testing.TB) store.Store) {
	ctx, s := Context(t), open(t)
	const n = 1703
	for i := 0; i < n; i += 100 {
		var ops []store.Op
		for k := i; k < min(i+100, n); k++ {
			ops = append(ops, store.Op{Key: fmt.Sprintf("list/%05d", k), Value: []byte("v")})
		}
		must(t, commitAll(ctx, s, ops))
	}
	Put(t, s, "lisu", "beside")
	Put(t, s, "lis", "beside")
	entries, revision, err := open(t).List(ctx, "list/")
	must(t, err)
	if len(entries) != n || revision == 0 {
		t.Fatalf("%d entries at %d, want %d", len(entries), revision, n)
	}
	for i, e := range entries {
		if e.Key != fmt.Sprintf("list/%05d", i) || string(e.Value) != "v" || e.Revision == 0 || e.Revision > revision {
			t.Fatalf("entry %d is %+v", i, e)
		}
	}
	if none, _, err := s.List(ctx, "nothing/"); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
}
