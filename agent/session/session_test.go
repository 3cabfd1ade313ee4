package session

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func open(t *testing.T, path string) store.Store {
	t.Helper()
	s, err := store.File(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newSession(s store.Store, machine, instance string) *Session {
	return New(s, Identity{Node: "a", Machine: machine, Instance: instance}, slog.New(slog.DiscardHandler))
}

// started starts a session that begins an ended watch again after a millisecond. It returns the session's revision too.
func started(t *testing.T, in store.Store) (*Session, int64) {
	t.Helper()
	s := newSession(in, "1", "x")
	s.retry = time.Millisecond
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	revision, err := s.Revision()
	if err != nil {
		t.Fatal(err)
	}
	return s, revision
}

func valid(s *Session) bool { _, err := s.Revision(); return err == nil }

func write(ctx context.Context, s *Session, key string) error {
	_, err := s.Store().Commit(ctx, store.Op{Key: key, Value: []byte(s.Machine)})
	return err
}

// TestTwins starts two machines with one node name. The second one writes only after the first one has stopped.
func TestTwins(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	ctx, stop := context.WithCancel(t.Context())
	first, second := newSession(open(t, path), "1", "x"), newSession(open(t, path), "2", "x")
	if err := first.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); !isTaken(err) {
		t.Errorf("the second machine: %v", err)
	}
	if err := write(t.Context(), second, "k"); !isTaken(err) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a commit of the second machine: %v", err)
	}
	if err := write(t.Context(), first, "k"); err != nil {
		t.Error(err)
	}
	go second.Run(t.Context())
	stop()
	kerneltest.Until(t, func() bool { return valid(second) })
	if err := write(t.Context(), second, "l"); err != nil {
		t.Error(err)
	}
	if err := write(t.Context(), first, "m"); err == nil {
		t.Error("the first machine writes after its session")
	}
}

// stalled is a store that does not answer, and whose watches report nothing, while it is away.
type stalled struct {
	store.Store
	mu   sync.Mutex
	away bool
}

func (s *stalled) wait(ctx context.Context) error {
	for s.isAway() {
		if ctx.Err() != nil {
			return store.ErrUnavailable
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (s *stalled) isAway() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.away }

func (s *stalled) set(away bool) { s.mu.Lock(); defer s.mu.Unlock(); s.away = away }

func (s *stalled) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := s.wait(ctx); err != nil {
		return store.Entry{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *stalled) Watch(ctx context.Context, prefix string, after int64, f func(store.Batch) error) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Store.Watch(ctx, prefix, after, func(b store.Batch) error {
		_ = s.wait(ctx)
		return f(b)
	})
}

// TestStalledStart starts a twin while the store does not answer. It works, but it does not write, then or later.
func TestStalledStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	first := newSession(open(t, path), "1", "x")
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow := &stalled{Store: open(t, path), away: true}
	twin := newSession(slow, "2", "x")
	if err := twin.Start(t.Context()); err != nil {
		t.Errorf("a start without the store: %v", err)
	}
	if err := write(t.Context(), twin, "k"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a commit without a session: %v", err)
	}
	go twin.Run(t.Context())
	slow.set(false)
	kerneltest.Until(t, func() bool { _, err := twin.Revision(); return isTaken(err) })
	if err := write(t.Context(), twin, "k"); !isTaken(err) {
		t.Errorf("a commit of the twin: %v", err)
	}
	if !valid(first) {
		t.Error("the twin ended the first machine's session")
	}
}

// TestPausedAgent takes the name of an agent that notices nothing, as after a pause. Its next commit fails, and its
// session ends.
func TestPausedAgent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	paused, other := newSession(open(t, path), "1", "x"), open(t, path)
	if err := paused.Start(t.Context()); err != nil { // Run does not run
		t.Fatal(err)
	}
	revision, _ := paused.Revision()
	replace := store.Op{Key: "alive/a", Value: []byte(`{"id": "2"}`), Expect: revision}
	if _, err := other.Commit(t.Context(), replace); err != nil {
		t.Fatal(err)
	}
	err := write(t.Context(), paused, "k")
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrConflict) {
		t.Errorf("a commit after the session: %v", err)
	}
	if _, err := other.Get(t.Context(), "k"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the commit wrote: %v", err)
	}
	if valid(paused) {
		t.Error("the session is valid after a commit failed")
	}
	go paused.Run(t.Context())
	kerneltest.Until(t, func() bool { _, err := paused.Revision(); return isTaken(err) })
	if e, err := other.Get(t.Context(), "alive/a"); err != nil || string(e.Value) != `{"id": "2"}` {
		t.Errorf("the other machine's key: %s, %v", e.Value, err)
	}
}

// TestDeletedKey deletes the key of a running agent. Its session ends, and another one begins.
func TestDeletedKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	s, other := newSession(open(t, path), "1", "x"), open(t, path)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.Changed()
	go s.Run(t.Context())
	first, _ := s.Revision()
	if _, err := other.Commit(t.Context(), store.Op{Key: "alive/a", Expect: first}); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool { now, err := s.Revision(); return err == nil && now != first })
	if e, err := other.Get(t.Context(), "alive/a"); err != nil || e.Revision == first {
		t.Errorf("the key: %+v, %v", e, err)
	}
	if err := write(t.Context(), s, "k"); err != nil {
		t.Error(err)
	}
}

// TestClonedDisk starts a machine with a copy of a running machine's disk. It waits for an earlier boot's session to
// expire, and then fails. The running machine keeps its key.
func TestClonedDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	original, clone := newSession(open(t, path), "1", "x"), newSession(open(t, path), "1", "y")
	clone.ttl = 2 * time.Second
	if err := original.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := clone.Start(t.Context()); !isTaken(err) || time.Since(began) < clone.ttl {
		t.Errorf("the clone: %v after %v", err, time.Since(began))
	}
	if err := write(t.Context(), original, "k"); err != nil {
		t.Errorf("the original lost its session: %v", err)
	}
}

// TestEarlierBoot starts a machine whose session from before its restart has not expired.
func TestEarlierBoot(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	before, after := newSession(open(t, path), "1", "x"), newSession(open(t, path), "1", "y")
	ctx, stop := context.WithCancel(t.Context())
	if err := before.Start(ctx); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, stop)
	if err := after.Start(t.Context()); err != nil || !valid(after) {
		t.Errorf("after a restart: %v", err)
	}
}

// TestKilledAgent starts an agent on the host of a killed agent, whose key still exists.
func TestKilledAgent(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "store"))
	if _, err := s.Commit(t.Context(), store.Op{Key: "alive/a", Value: []byte(`{"id":"1","instance":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	if again := newSession(s, "1", "x"); again.Start(t.Context()) != nil || !valid(again) {
		t.Error("the agent waits for its own key")
	}
}

// TestStoppedProcess stops an agent's process for longer than its lease. Another machine takes over, and the process
// writes nothing after it continues.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{})
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestWriter$")
	child.Env = append(os.Environ(), "FAIRLEAD_SESSION_WRITER="+strings.Join(etcd.Options().Endpoints, ","))
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	admin := etcd.Store(t)
	writes := func() int64 { e, _ := admin.Get(t.Context(), "child"); return e.Revision }
	kerneltest.Until(t, func() bool { return writes() > 0 })
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	other := newSession(etcd.Store(t), "2", "x")
	go other.Run(t.Context())
	kerneltest.Until(t, func() bool { return valid(other) })
	before := writes()
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool { _, err := admin.Get(t.Context(), "refused"); return err == nil })
	if after := writes(); after != before {
		t.Errorf("the stopped process wrote revision %d after another machine had taken over at %d", after, before)
	}
	if !valid(other) {
		t.Error("the process that continued ended the other machine's session")
	}
}

// TestWriter is the child process of TestStoppedProcess. It commits until a commit fails, and then records that without
// a session.
func TestWriter(t *testing.T) {
	endpoints := kerneltest.OptIn(t, "FAIRLEAD_SESSION_WRITER") // TestStoppedProcess sets it
	raw, err := store.Etcd(store.Options{Endpoints: strings.Split(endpoints, ",")})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(raw, "1", "x")
	s.ttl = 2 * time.Second
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := s.current()
	var revision int64
	for err == nil {
		revision, err = s.commit(t.Context(), held, []store.Op{{Key: "child", Value: []byte("x"), Expect: revision}})
		time.Sleep(time.Millisecond)
	}
	if _, err := raw.Commit(t.Context(), store.Op{Key: "refused", Value: []byte(err.Error())}); err != nil {
		t.Fatal(err)
	}
}

// TestModel runs three machines with one name and disturbs them at random: keys are deleted, the store stalls. Each
// commit appends to a log of the sessions; a session's commits must form one uninterrupted part of it.
func TestModel(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{})
	ctx, stop := context.WithTimeout(t.Context(), kerneltest.Slow(time.Minute))
	defer stop()
	admin := etcd.Store(t)
	var all sync.WaitGroup
	sessions := func() (commits, ended int) {
		entries, _, err := admin.List(t.Context(), "log/")
		if err != nil {
			t.Fatal(err)
		}
		over, last := map[string]bool{}, ""
		for _, e := range entries {
			if now := string(e.Value); now != last {
				if over[now] {
					t.Fatalf("session %s writes %s after session %s began", now, e.Key, last)
				}
				over[last], last = true, now
			}
		}
		return len(entries), len(over)
	}
	for machine := range 3 {
		slow := &stalled{Store: etcd.Store(t)}
		s := newSession(slow, strconv.Itoa(machine), "x")
		s.retry = 10 * time.Millisecond
		all.Go(func() { s.Run(ctx) })
		all.Go(func() { appendLog(ctx, s) })
		all.Go(func() {
			for ctx.Err() == nil {
				slow.set(rand.N(3) == 0)
				time.Sleep(rand.N(50 * time.Millisecond))
			}
		})
	}
	commits, ended := 0, 0
	for end := time.Now().Add(kerneltest.Slow(5 * time.Second)); ctx.Err() == nil && (time.Now().Before(end) || commits < 20 || ended < 5); {
		time.Sleep(rand.N(200 * time.Millisecond))
		if time.Now().After(end) {
			commits, ended = sessions()
		}
		if e, err := admin.Get(ctx, "alive/a"); err == nil {
			_, _ = admin.Commit(ctx, store.Op{Key: e.Key, Expect: e.Revision})
		}
	}
	stop()
	all.Wait()
	if commits, ended = sessions(); commits < 20 || ended < 5 {
		t.Errorf("%d commits in %d sessions", commits, ended)
	}
}

// appendLog commits entries with increasing numbers, which contain the machine and the session.
func appendLog(ctx context.Context, s *Session) {
	for ctx.Err() == nil {
		held := s.current()
		if held == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		n := 0
		e, err := s.store.(*stalled).Store.Get(ctx, "count")
		if err == nil {
			n, _ = strconv.Atoi(string(e.Value))
		}
		time.Sleep(rand.N(5 * time.Millisecond)) // a pause between the decision and the commit
		_, _ = s.commit(ctx, held, []store.Op{
			{Key: "count", Value: []byte(strconv.Itoa(n + 1)), Expect: e.Revision},
			{Key: "log/" + strconv.Itoa(1000000+n), Value: []byte(s.Machine + " " + strconv.FormatInt(held.Revision, 10))},
		})
	}
}

// TestCompactedWatch checks that a session's watch begins again only once after the store compacted its revision.
func TestCompactedWatch(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, etcdtest.Options{})
	counted := &counting{Store: etcd.Store(t)}
	s, first := started(t, counted)
	other := etcd.Store(t)
	for _, node := range []string{"b", "c", "d"} {
		if _, err := other.Commit(t.Context(), store.Op{Key: "nodes/" + node, Value: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	etcd.Compact()
	go s.Run(t.Context())
	kerneltest.Until(t, func() bool { return counted.watches.Load() > 1 }) // the first watch was of a compacted revision
	time.Sleep(time.Second)                                                // in which it would begin ten more
	if n := counted.watches.Load(); n > 3 {
		t.Errorf("%d watches", n)
	}
	if _, err := other.Commit(t.Context(), store.Op{Key: "alive/a", Expect: first}); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool { now, err := s.Revision(); return err == nil && now != first })
}

// counting counts a store's watches.
type counting struct {
	store.Store
	watches atomic.Int32
}

func (c *counting) Watch(ctx context.Context, prefix string, after int64, f func(store.Batch) error) error {
	c.watches.Add(1)
	return c.Store.Watch(ctx, prefix, after, f)
}

// interrupted is a store whose watches end with an error.
type interrupted struct {
	store.Store
	watches atomic.Int32
}

func (s *interrupted) Watch(context.Context, string, int64, func(store.Batch) error) error {
	s.watches.Add(1)
	return store.ErrUnavailable
}

// TestInterruptedWatch checks that a session outlives interrupted watches of its key, and ends when the key is deleted
// although no watch reports it.
func TestInterruptedWatch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store")
	broken := &interrupted{Store: open(t, path)}
	s, first := started(t, broken)
	go s.Run(t.Context())
	kerneltest.Until(t, func() bool { return broken.watches.Load() > 3 })
	if now, err := s.Revision(); now != first || err != nil {
		t.Errorf("after interrupted watches the session is %d: %v, want %d", now, err, first)
	}
	if _, err := open(t, path).Commit(t.Context(), store.Op{Key: "alive/a", Expect: first}); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool { now, err := s.Revision(); return err == nil && now != first })
}

// sameRevision is a store that reports a deletion with the revision of the deleted key, as the Kubernetes API does.
type sameRevision struct{ store.Store }

func (s sameRevision) Watch(ctx context.Context, prefix string, after int64, f func(store.Batch) error) error {
	known := map[string]int64{}
	if list, _, err := s.List(ctx, prefix); err == nil {
		for _, e := range list {
			known[e.Key] = e.Revision
		}
	}
	return s.Store.Watch(ctx, prefix, after, func(b store.Batch) error {
		for i, e := range b.Events {
			if e.Deleted {
				b.Events[i].Revision = known[e.Key]
			}
		}
		return f(b)
	})
}

// TestDeletedKeyOfTheSameRevision checks that a session ends when its key is deleted, although nothing is committed and
// the event has the key's revision.
func TestDeletedKeyOfTheSameRevision(t *testing.T) {
	t.Parallel()
	s, revision := started(t, sameRevision{open(t, filepath.Join(t.TempDir(), "store"))})
	go s.Run(t.Context())
	time.Sleep(100 * time.Millisecond) // the watch has begun
	if _, err := s.store.Commit(t.Context(), store.Op{Key: cluster.AliveKey("a"), Expect: revision}); err != nil {
		t.Fatal(err)
	}
	kerneltest.Until(t, func() bool { now, err := s.Revision(); return err == nil && now != revision })
}

// booted is a store whose sessions do not expire, and whose node reports a boot.
type booted struct {
	store.Store
	boot string
}

func (b booted) NodeBoot(context.Context, string) (string, error) { return b.boot, nil }

// TestKilledAgentOfThisBoot starts an agent whose directory of runtime state, and maybe machine ID, is new since another
// agent of this boot was killed. That agent's session does not expire, so the new one removes it. An agent of another boot
// stays, and so does one whose machine took over the node.
func TestKilledAgentOfThisBoot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		machine, instance, node string
		ok                      bool
	}{
		{"1", "boot new", "boot", true}, {"2", "boot new", "boot", true},
		{"2", "other new", "boot", false}, {"2", "other new", "other", false}, {"2", "boot new", "other", false}, {"2", "boot new", "", false},
	} {
		s := booted{open(t, filepath.Join(t.TempDir(), "store")), c.node}
		if _, err := s.Commit(t.Context(), store.Op{Key: "alive/a", Value: []byte(`{"id":"1","instance":"boot old"}`)}); err != nil {
			t.Fatal(err)
		}
		again := newSession(s, c.machine, c.instance)
		if err := again.Start(t.Context()); (err == nil) != c.ok || valid(again) != c.ok || isTaken(err) == c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
