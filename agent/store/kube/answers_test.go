package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestRetryAfter checks that an answer cannot stop an agent for an hour or make it ask without a pause, and that a call
// with a time limit returns what the API said.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, pause := range []string{"0", "3600"} {
		t.Run(pause, func(t *testing.T) {
			t.Parallel()
			var busy atomic.Bool
			var requests atomic.Int32
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				if !busy.Load() {
					fmt.Fprint(w, `{"metadata": {"resourceVersion": "1"}}`)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Retry-After", pause)
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429, "message": "too many agents"}`)
			})

			busy.Store(true)
			within, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			if _, err := s.Get(within, cluster.NetworkKey("default")); err == nil || !strings.Contains(err.Error(), "too many agents") {
				t.Errorf("a call with a time limit returned %v", err)
			}
			if n := requests.Load(); n > 2 {
				t.Errorf("%d requests within 1.5 s", n)
			}
			time.AfterFunc(500*time.Millisecond, func() { busy.Store(false) })
			began := time.Now()
			within, cancel = context.WithTimeout(t.Context(), kerneltest.Slow(time.Minute))
			defer cancel()
			if _, _, err := s.List(within, cluster.NetworksPrefix); err != nil || time.Since(began) > kerneltest.Slow(8*time.Second) {
				t.Errorf("a list: %v, after %v", err, time.Since(began))
			}
		})
	}
}

// TestListsEnd checks that requests that are not watches have a time limit. The client waits for as long as it asks the API
// to take at most.
func TestListsEnd(t *testing.T) {
	t.Parallel()
	var limits []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		limits = append(limits, r.URL.Path+" "+r.URL.Query().Get("timeout"))
		if r.URL.Path == "/api/v1/nodes" {
			fmt.Fprint(w, "k8s\x00\x12\x05\x0a\x03\x12\x011") // an empty list at revision 1, in protobuf
			return
		}
		fmt.Fprint(w, `{"metadata": {"resourceVersion": "1"}}`)
	})
	for _, prefix := range []string{cluster.NetworksPrefix, cluster.NodesPrefix} {
		if _, _, err := s.List(t.Context(), prefix); err != nil {
			t.Error(err)
		}
		_, _ = s.Get(t.Context(), prefix+".") // which asks whether the API answers
	}
	want := []string{"/apis/fairlead.io/v1alpha1/networks 1m0s", "/readyz 1m0s", "/api/v1/nodes 1m0s", "/readyz 1m0s"}
	if !slices.Equal(limits, want) {
		t.Errorf("time limits %q, want %q", limits, want)
	}
}

// TestRefusedWatch checks that a watch that the API refuses ends at once, although the answer asks for another attempt: its
// caller has to know that it receives no changes.
func TestRefusedWatch(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			fmt.Fprint(w, `{"metadata": {"resourceVersion": "1"}}`)
			return
		}
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy", http.StatusServiceUnavailable)
	})
	for _, prefix := range []string{cluster.NetworksPrefix, cluster.NodesPrefix} {
		began := time.Now()
		err := s.Watch(t.Context(), prefix, 1, func(store.Batch) error { return nil })
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > kerneltest.Slow(900*time.Millisecond) {
			t.Errorf("%s: %v after %v", prefix, err, time.Since(began))
		}
	}
}

// warnings counts the warnings of clients that have no other handler.
// TestAnswersOfAProxy checks that what a proxy answers in the place of the API is an error. It is not an empty list, the end of
// a session, or a sign that the API was restored from a backup.
func TestAnswersOfAProxy(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/nodes" && r.URL.Query().Get("limit") == "" {
			fmt.Fprint(w, "k8s\x00\x12\x00") // a message without fields
			return
		}
		fmt.Fprint(w, `{"error": "log in"}`)
	})
	for _, prefix := range []string{cluster.NetworksPrefix, cluster.BlocksPrefix, cluster.NodesPrefix, cluster.AlivePrefix} {
		if list, _, err := s.List(t.Context(), prefix); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "not a list of the API") {
			t.Errorf("a list of %s: %v, %v", prefix, list, err)
		}
	}
	for _, key := range []string{cluster.NetworksPrefix, cluster.NodesPrefix, cluster.AliveKey("a")} {
		err := s.Watch(t.Context(), key, 7, func(b store.Batch) error {
			t.Errorf("a watch of %s reports %+v", key, b)
			return nil
		})
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrRestored) {
			t.Errorf("a watch of %s: %v", key, err)
		}
	}
}

// TestDeletedResource checks what a watch says after somebody deleted a CustomResourceDefinition, or of an API that has lost it
// between two requests.
func TestDeletedResource(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"limit", "watch"} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if !r.URL.Query().Has(missing) {
				fmt.Fprint(w, `{"metadata": {"resourceVersion": "9"}}`)
				return
			}
			http.NotFound(w, r)
		})
		err := s.Watch(t.Context(), cluster.BlocksPrefix, 7, func(store.Batch) error { return nil })
		const want = "the Kubernetes API has no resource /apis/fairlead.io/v1alpha1/ipblocks"
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "file") {
			t.Errorf("%s: %v, want %s", missing, err, want)
		}
	}
}

// TestCutWatches checks that a proxy that cuts each watch after a while does not make the store unavailable: then an agent would
// never release what a removed node had. An API that does not answer is unavailable at once.
func TestCutWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &cutWatches{}
		s, err := kube.Open(kube.Options{Config: &rest.Config{Host: "http://api", Transport: api}, Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		f := &away{}
		time.AfterFunc(59*time.Minute, func() {
			if err := f.why(); err != nil || api.watches.Load() < 100 {
				t.Errorf("after %d watches, the store is unavailable: %v", api.watches.Load(), err)
			}
			api.ended.Store(true)
		})
		_ = store.FollowAll(ctx, s, []string{cluster.BlocksPrefix, cluster.NetworksPrefix}, f)
		if f.why() == nil {
			t.Error("the store of an API that does not answer is available")
		}
	})
}

// cutWatches is an API whose watches are cut after a while.
type cutWatches struct {
	watches atomic.Int32
	ended   atomic.Bool
}

func (a *cutWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.ended.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	answer.Body = io.NopCloser(strings.NewReader(`{"metadata": {"resourceVersion": "1"}}`))
	if r.URL.Query().Has("watch") {
		a.watches.Add(1)
		answer.Body = io.NopCloser(cut{r.Context()})
	}
	return answer, nil
}

const watchLasts = 50 * time.Second // of the test's clock

// cut is the body of a watch that is cut.
type cut struct{ ctx context.Context }

func (c cut) Read([]byte) (int, error) {
	select {
	case <-c.ctx.Done():
		return 0, c.ctx.Err()
	case <-time.After(watchLasts):
		return 0, io.ErrUnexpectedEOF
	}
}

// away is a follower that keeps why its store was unavailable.
type away struct {
	mu  sync.Mutex
	err error
}

func (*away) Reset([]store.Entry, int64) {}
func (*away) Change(store.Batch)         {}
func (*away) Reconnected()               {}
func (a *away) Disconnected(err error)   { a.mu.Lock(); defer a.mu.Unlock(); a.err = err }
func (a *away) why() error               { a.mu.Lock(); defer a.mu.Unlock(); return a.err }

type warnings struct{ atomic.Int32 }

func (w *warnings) HandleWarningHeader(int, string, string) { w.Add(1) }

// TestWarnings checks that warnings of the API, such as those about the podCIDRs of a Node that the agent patches, do not get
// between the lines of the agent's log.
func TestWarnings(t *testing.T) { // it sets a global handler, so it is not parallel
	var seen warnings
	rest.SetDefaultWarningHandler(&seen)
	defer rest.SetDefaultWarningHandler(rest.WarningLogger{})
	const document = `{"id":"x","addresses":[]}`
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", `299 - "spec.podCIDRs[1]: should be in RFC 5952 canonical format"`)
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"fairlead.io/node": document}}})
	})
	commit(t, s, put(cluster.NodeKey("a"), document, 0))
	if n := seen.Load(); n != 0 {
		t.Errorf("%d warnings were logged", n)
	}
}
