package address

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/source"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// serve starts a server with test operations and returns its callers' directory.
func serve(t *testing.T) local.Dir {
	t.Helper()
	d, l := listener(t)
	s := &Server{Handlers: map[string]Handler{
		"echo": func(_ context.Context, args json.RawMessage) (any, error) { return args, nil },
		"fail": func(context.Context, json.RawMessage) (any, error) { return nil, cni.Errorf(7, "it is wrong") },
		"away": func(context.Context, json.RawMessage) (any, error) {
			return nil, fmt.Errorf("ask: %w", store.ErrUnavailable)
		},
		"wait":  func(ctx context.Context, _ json.RawMessage) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
		"large": func(context.Context, json.RawMessage) (any, error) { return strings.Repeat("x", 2*local.MaxLine), nil },
	}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("serving ended with %v", err)
		}
	})
	return d
}

// listener returns an agent's socket and its callers' directory.
func listener(t *testing.T) (local.Dir, *net.UnixListener) {
	t.Helper()
	run, err := os.MkdirTemp("", "fl") // a socket's path is limited to 107 bytes
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(run) })
	d := local.Open(t.TempDir(), run)
	l, err := Listen(d.Socket())
	must(t, err)
	return d, l
}

// TestSocketSurvivesAcceptError checks that a failed accept, for example for lack of file descriptors, does not stop
// the server.
func TestSocketSurvivesAcceptError(t *testing.T) {
	t.Parallel()
	d, l := listener(t)
	s := &Server{Handlers: map[string]Handler{"echo": func(_ context.Context, args json.RawMessage) (any, error) { return args, nil }}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	must(t, l.SetDeadline(time.Now())) // makes accept fail
	time.Sleep(3 * acceptPause)
	must(t, l.SetDeadline(time.Time{}))
	var out local.Release
	if err := d.Call(ctx, "echo", local.Release{Network: "x"}, &out); err != nil || out.Network != "x" {
		t.Errorf("got %+v, %v", out, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("serving ended with %v", err)
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	d := serve(t)
	ctx := context.Background()
	fi, err := os.Stat(d.Socket())
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", fi.Mode(), err)
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			var got local.Release
			want := local.Release{Network: "n", Container: fmt.Sprintf("c\"\n%d", i), IfName: "é"}
			if err := d.Call(ctx, "echo", want, &got); err != nil || got != want {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	all.Wait()
	for op, want := range map[string]struct {
		code  uint
		words string
	}{"fail": {7, "it is wrong"}, "away": {11, "not available"}, "nothing": {100, `does not know the operation "nothing"`}} {
		e, ok := errors.AsType[*local.Error](d.Call(ctx, op, local.Release{}, nil))
		if !ok || e.Code != want.code || !strings.Contains(e.Msg, want.words) {
			t.Errorf("%s: %+v", op, e)
		}
	}
	if err := d.Call(ctx, "large", local.Release{}, new(string)); err == nil || !strings.Contains(err.Error(), "before the end of its answer") {
		t.Errorf("an answer without end: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := d.Call(short, "wait", local.Release{}, nil); err == nil {
		t.Error("a call that ended has an answer")
	}
	// An agent that stops during a request counts as unavailable: the plugin returns "try again later".
	if _, ok := errors.AsType[*local.AwayError](askOneThatEnds(t)); !ok {
		t.Error("the error does not say that the agent is gone")
	}
	if _, err := Listen(d.Socket()); err == nil || !strings.Contains(err.Error(), "answers on") {
		t.Errorf("a second agent: %v", err)
	}
	none := local.Open(t.TempDir(), t.TempDir())
	if _, ok := errors.AsType[*local.AwayError](none.Call(ctx, "echo", local.Release{}, nil)); !ok {
		t.Error("the error does not say that there is no agent")
	}
}

// askOneThatEnds returns the error of a call to an agent that closes the connection.
func askOneThatEnds(t *testing.T) error {
	t.Helper()
	d, l := listener(t)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			conn.Close() // without reading the request: the connection is reset
		}
		l.Close()
	}()
	return d.Call(context.Background(), "echo", local.Release{}, nil)
}

// TestStaleSocketIsReplaced checks that Listen replaces a dead agent's socket.
func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	again, err := Listen(path)
	must(t, err)
	again.Close()
}

// TestSocketRejectsMalformedLines checks that malformed requests are rejected and that an overlong line is not read to
// its end.
func TestSocketRejectsMalformedLines(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for line, want := range map[string]string{
		"nonsense\n":                              `"code":6`,
		`{"v":9,"op":"echo"}` + "\n":              "has version 9",
		`{"op":"echo"}` + "\n":                    "has version 0",
		strings.Repeat("x", local.MaxLine) + "\n": "incomplete request",
	} {
		conn, err := net.Dial("unix", d.Socket())
		must(t, err)
		_ = conn.SetDeadline(time.Now().Add(kerneltest.Slow(20 * time.Second)))
		_, _ = conn.Write([]byte(line))
		out := make([]byte, 1000)
		n, _ := conn.Read(out)
		conn.Close()
		if !strings.Contains(string(out[:n]), want) {
			t.Errorf("%.30q: %s", line, out[:n])
		}
	}
}

// FuzzRequest checks that any line gets exactly one valid answer.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"v":1,"op":"claim","args":{"network":"default","container":"c","ifName":"eth0","wants":[{"ranges":[{"first":"10.0.0.1","last":"10.0.0.9"}]}]}}`))
	f.Add([]byte(`{"v":1,"op":"status","args":{"network":"default","subnets":["10.0.0.0/8"]}}`))
	f.Add([]byte(`{"v":1,"op":"lookup","args":{"network":"a/b","container":"c"}}`))
	f.Add([]byte(`{"v":1,"op":"release","args":[]}`))
	f.Add([]byte(`{"v":1,"op":"report"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := store.File(filepath.Join(t.TempDir(), "store"))
		must(t, err)
		defer s.Close()
		m := NewManager(Options{Store: s, Node: "a", Dir: local.Open(t.TempDir(), t.TempDir())})
		m.Reset(source.DecodeAll([]store.Entry{{Key: "networks/default", Value: []byte(twoSubnets), Revision: 1}}), 1)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		a, _ := (&Server{Handlers: m.Handlers()}).answer(ctx, line)
		raw, err := json.Marshal(a)
		var again local.Answer
		if err != nil || json.Unmarshal(raw, &again) != nil || (a.Error == nil) == (a.Result == nil) {
			t.Errorf("%s: %v", raw, err)
		}
	})
}
