package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func TestEtcd(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	storetest.Run(t, c.Store)
}

func TestEtcdOfThree(t *testing.T) {
	t.Parallel()
	// On a busy machine, members elect a leader many times, and a call lasts longer than its usual timeout.
	c := etcdtest.Start(t, etcdtest.Options{Members: 3, TLS: true, Flags: []string{"--heartbeat-interval", "200", "--election-timeout", "2000"}})
	c.EnableAuth()
	storetest.Run(t, func(t testing.TB) store.Store {
		o := c.Options()
		o.Timeout, o.DialTimeout = 30*time.Second, 30*time.Second
		return c.StoreWith(t, o)
	})
}

// TestEtcdRefuses checks that a rejection by etcd is not reported as unavailability and gives the reason.
func TestEtcdRefuses(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{TLS: true})
	c.EnableAuth()
	good := c.Options()
	for name, row := range map[string]struct {
		change func(*store.Options)
		away   bool
		want   string
	}{
		"no user":            {func(o *store.Options) { o.Username, o.Password = "", "" }, false, "permission denied"},
		"wrong password":     {func(o *store.Options) { o.Password = "wrong" }, false, "authentication failed"},
		"outside its prefix": {func(o *store.Options) { o.Prefix = "/other/" }, false, "permission denied"},
		"no certificate":     {func(o *store.Options) { o.Cert, o.Key = "", "" }, true, "it requires a client certificate: set cert and key: the store is not available"},
		"another authority":  {func(o *store.Options) { o.CACert = etcdtest.Authority(t) }, true, "certificate signed by unknown authority: the CA is not in "},
		"no authority":       {func(o *store.Options) { o.CACert = "" }, true, "set caCert to the certificate of its CA"},
		"without TLS": {func(o *store.Options) {
			o.CACert, o.Cert, o.Key, o.Endpoints = "", "", "", []string{strings.Replace(o.Endpoints[0], "https:", "http:", 1)}
		}, true, " uses TLS: set the endpoint to https://127."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := good
			o.Timeout = 3 * time.Second
			row.change(&o)
			s, err := store.Etcd(o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, _, err = s.List(context.Background(), "nodes/")
			if err == nil || errors.Is(err, store.ErrUnavailable) != row.away || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), o.Endpoints[0]) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestEtcdOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]store.Options{
		"no endpoints":            {},
		"set both cert and key":   {Endpoints: []string{"https://127.0.0.1:1"}, Cert: "cert"},
		"no such file":            {Endpoints: []string{"https://127.0.0.1:1"}, CACert: "/nowhere/ca.pem"},
		"contains no certificate": {Endpoints: []string{"https://127.0.0.1:1"}, CACert: "etcd_test.go"},
		"the client certificat":   {Endpoints: []string{"https://127.0.0.1:1"}, Cert: "etcd_test.go", Key: "etcd_test.go"},
	} {
		if _, err := store.Etcd(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestEtcdSchemes checks that encryption depends neither on the order of the endpoints nor on other options.
func TestEtcdSchemes(t *testing.T) {
	t.Parallel()
	ca := etcdtest.Authority(t)
	for _, c := range []struct {
		endpoints, ca, want string
	}{
		{"http://a:1 http://b:1", "", ""},
		{"https://a:1 https://b:1", "", ""},
		{"https://a:1", ca, ""},
		{"a:1 b:1", "", ""},
		{"a:1 b:1", ca, ""},
		{"http://a:1", ca, "http://a:1 is unencrypted"},
		{"https://a:1 http://b:1", "", "http://b:1: want all of them with https"},
		{"http://a:1 https://b:1", "", "https://b:1: want all of them with https"},
		{"a:1 https://b:1", "", "https://b:1: want all of them with https"},
		{"https://a:1 b:1", ca, "b:1: want all of them with https"},
		{"HTTPS://a:1", ca, `"HTTPS://a:1": want "https://HOST:PORT"`},
		{"https://", "", `"https://": want`},
		{"", "", `etcd endpoint "": want`},
		{"foo", "", `etcd endpoint "foo" has no port: want one like "https://HOST:2379"`},
		{"http://a:1/ http://[::1]", "", `etcd endpoint "http://[::1]" has no port`},
		{"https://a:1 https://root:secret@b:1", "", "an etcd endpoint contains a user name or password"},
	} {
		s, err := store.Etcd(store.Options{Endpoints: strings.Split(c.endpoints, " "), CACert: c.ca})
		if err == nil {
			_ = s.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with authority %q: %v, want %q", c.endpoints, c.ca, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is shown: %v", err)
		}
	}
}

// TestEtcdWithoutTLS checks the error for https endpoints of an etcd without TLS: it advises what to check and does not
// mention deadlines.
func TestEtcdWithoutTLS(t *testing.T) {
	t.Parallel()
	o := etcdtest.Start(t, etcdtest.Options{}).Options()
	o.Endpoints, o.Timeout = []string{strings.Replace(o.Endpoints[0], "http:", "https:", 1)}, time.Second
	s, err := store.Etcd(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Get(storetest.Context(t), "a")
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "its endpoint must begin with http://") || strings.Contains(err.Error(), "deadline") {
		t.Errorf("got %v", err)
	}
}

// TestEtcdAway checks that every call to an unreachable etcd fails soon and names it.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "somebody"} {
		s, err := store.Etcd(store.Options{Endpoints: []string{"http://127.0.0.1:1"}, Timeout: time.Second, DialTimeout: time.Second, Username: user})
		if err != nil {
			t.Fatal(err)
		}
		ctx := storetest.Context(t)
		_, getErr := s.Get(ctx, "a")
		_, _, listErr := s.List(ctx, "a")
		_, commitErr := s.Commit(ctx, store.Op{Key: "a", Value: []byte("b")})
		_, holdErr := s.Hold(ctx, "a", nil, time.Second)
		for i, err := range []error{getErr, listErr, commitErr, holdErr} {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
				t.Errorf("call %d of user %q: %v", i, user, err)
			}
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		if _, err := s.Get(short, "a"); !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), ": no answer in time") {
			t.Errorf("after the caller's deadline: %v", err)
		}
		cancel()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEtcdReconnect checks that a client connects again and again while etcd is away, at intervals of a few seconds at most.
func TestEtcdReconnect(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := store.Etcd(store.Options{Endpoints: []string{"http://" + l.Addr().String()}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	go func() {
		for t.Context().Err() == nil {
			_, _ = s.Get(t.Context(), "a")
		}
	}()
	longest, last := time.Duration(0), time.Now()
	for start := last; last.Sub(start) < 30*time.Second; {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		preface := make([]byte, 3) // of HTTP/2; the search for the reason of a failure sends none
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = io.ReadFull(conn, preface)
		conn.Close()
		if now := time.Now(); string(preface) == "PRI" {
			longest, last = max(longest, now.Sub(last)), now
		}
	}
	if limit := kerneltest.Slow(7 * time.Second); longest > limit {
		t.Errorf("%v passed between two attempts to connect, want at most %v", longest, limit)
	}
}

// TestEtcdCompaction checks that a watch from a compacted revision lists again.
func TestEtcdCompaction(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	s := c.Store(t)
	first := storetest.Put(t, s, "nodes/a", "1")
	storetest.Put(t, s, "nodes/a", "2")
	storetest.Put(t, s, "nodes/a", "3")
	c.Compact()
	err := s.Watch(storetest.Context(t), "nodes/", first, func(store.Batch) error { return nil })
	if !errors.Is(err, store.ErrCompacted) {
		t.Fatalf("got %v", err)
	}
	storetest.Put(t, s, "nodes/b", "1")
}

// TestEtcdQuorum checks that losing one of three members has no visible effect. Without a quorum, calls fail soon, a
// hold is lost, and the follower is informed. Afterwards it continues where it was.
func TestEtcdQuorum(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	o := c.Options()
	o.Timeout = 4 * time.Second
	s, err := store.Etcd(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	m := &storetest.Mirror{}
	storetest.Follow(t, s, m, "nodes/")
	held, err := s.Hold(storetest.Context(t), "alive/a", nil, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	put := func(key string) {
		t.Helper()
		kerneltest.Until(t, func() bool {
			_, err := s.Commit(storetest.Context(t), store.Op{Key: key, Value: []byte("1")})
			return err == nil || errors.Is(err, store.ErrConflict) // committed, but the answer was lost
		})
		want[key] = "1"
		kerneltest.Until(t, func() bool { return m.Has(want) })
	}
	put("nodes/whole")
	c.Members[0].Kill()
	put("nodes/two")
	select {
	case <-held.Lost:
		t.Error("the hold was lost with one member of three")
	default:
	}
	c.Members[1].Kill()
	began := time.Now()
	if _, err := s.Get(storetest.Context(t), "nodes/two"); !errors.Is(err, store.ErrUnavailable) || time.Since(began) > kerneltest.Slow(8*time.Second) {
		t.Errorf("without a quorum: %v after %v", err, time.Since(began))
	}
	m.WaitAway(t, true)
	<-held.Lost
	c.Members[0].Restart()
	c.Members[1].Restart()
	c.Members[0].Wait()
	put("nodes/back")
	resets, away, back := m.Counts()
	if resets != 1 || away < 1 || back != away {
		t.Errorf("listed %d times, away %d times, back %d times", resets, away, back)
	}
}

// TestEtcdSilent checks that a member that stops answering on open connections is given up.
func TestEtcdSilent(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	s := c.Store(t)
	m := &storetest.Mirror{}
	storetest.Follow(t, s, m, "nodes/")
	storetest.Put(t, s, "nodes/a", "1")
	kerneltest.Until(t, func() bool { return m.Has(map[string]string{"nodes/a": "1"}) })
	m.WaitAway(t, false)
	c.Members[0].Pause()
	m.WaitAway(t, true)
	c.Members[0].Resume()
	m.WaitAway(t, false)
	storetest.Put(t, s, "nodes/b", "1")
	kerneltest.Until(t, func() bool { return m.Has(map[string]string{"nodes/a": "1", "nodes/b": "1"}) })
}

func TestClosedEtcd(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	s := c.Store(t)
	done := make(chan error, 1)
	revision := storetest.Put(t, s, "nodes/a", "1")
	go func() {
		done <- s.Watch(context.Background(), "", revision-1, func(b store.Batch) error { return s.Close() })
	}()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Get(context.Background(), "nodes/a"); !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", fmt.Sprint(err))
	}
}

// TestEtcdMounts checks that a mounted prefix is listed, watched and written together with the store's own keys, in the
// same transaction.
func TestEtcdMounts(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	o := c.Options()
	o.Mounts = map[string]string{"flannel/": "/coreos.com/network/"}
	s, err := store.Etcd(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := storetest.Context(t)
	client := c.Client()
	if _, err := client.Put(ctx, "/coreos.com/network/config", "{}"); err != nil {
		t.Fatal(err)
	}
	two := []store.Op{{Key: "blocks/default/x", Value: []byte("1")}, {Key: "flannel/subnets/x", Value: []byte("2")}}
	if _, err := s.Commit(ctx, two...); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, store.Op{Key: "blocks/default/y", Value: []byte("1")}, two[1]); !errors.Is(err, store.ErrConflict) || !strings.Contains(err.Error(), "flannel/subnets/x") {
		t.Errorf("a key of the mount that is there: %v", err)
	}
	if r, err := client.Get(ctx, "/coreos.com/network/subnets/x"); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "2" {
		t.Errorf("etcd has %v, %v", r, err)
	}
	entries, revision, err := s.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(keysOf(entries)); got != "[blocks/default/x flannel/config flannel/subnets/x]" {
		t.Errorf("listed %s", got)
	}
	if some, _, err := s.List(ctx, "flannel/subnets/"); err != nil || fmt.Sprint(keysOf(some)) != "[flannel/subnets/x]" {
		t.Errorf("listed %v, %v", keysOf(some), err)
	}
	seen := map[string]bool{}
	done := errors.New("all was seen")
	go func() {
		_, _ = client.Put(ctx, "/coreos.com/network/subnets/z", "3")
		_, _ = client.Delete(ctx, "/fairlead/blocks/default/x")
	}()
	err = s.Watch(ctx, "", revision, func(b store.Batch) error {
		for _, e := range b.Events {
			seen[fmt.Sprint(e.Key, e.Deleted)] = true
		}
		if seen["flannel/subnets/zfalse"] && seen["blocks/default/xtrue"] {
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Errorf("watched %v: %v", seen, err)
	}
}

func keysOf(list []store.Entry) (keys []string) {
	for _, e := range list {
		keys = append(keys, e.Key)
	}
	return keys
}
