package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/cluster"
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
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				if !busy.Load() {
					fmt.Fprint(w, `{"metadata": {"resourceVersion": "1"}}`)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Retry-After", pause)
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429, "message": "too many agents"}`)
			}))
			defer api.Close()
			s, err := kube.Open(kube.Options{Config: &rest.Config{Host: api.URL}, Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()

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
