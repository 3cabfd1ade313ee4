package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// TestErrorsWhileWaiting checks which answers of the API server end a wait. An API server that restarts in the middle of
// an installation gives the first kind.
func TestErrorsWhileWaiting(t *testing.T) {
	t.Parallel()
	status := func(code int, reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d}`, reason, code)
		}
	}
	for name, x := range map[string]struct {
		answer http.HandlerFunc
		passes bool
	}{
		"closed": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			fmt.Fprint(w, "{")
		}, true},
		"internal":   {status(500, "InternalError"), true},
		"proxy":      {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }, true},
		"starting":   {status(503, "ServiceUnavailable"), true},
		"slow":       {status(504, "Timeout"), true},
		"expired":    {status(410, "Expired"), true},
		"anonymous":  {status(401, "Unauthorized"), false},
		"forbidden":  {status(403, "Forbidden"), false},
		"missing":    {status(404, "NotFound"), false},
		"not an API": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewServer(x.answer)
			defer api.Close()
			c, err := New(&rest.Config{Host: api.URL}, "x")
			if err != nil {
				t.Fatal(err)
			}
			var into any
			if err = c.get(t.Context(), &into, "/api/v1/nodes"); err == nil || passes(err) != x.passes {
				t.Errorf("passes: %v, want %v: %v", !x.passes, x.passes, err)
			}
		})
	}
}

// TestUntil checks how long a wait continues while requests fail.
func TestUntil(t *testing.T) {
	t.Parallel()
	silent, denied := noAnswerError{errors.New("no answer")}, errors.New("denied")
	for name, x := range map[string]struct {
		results func(time.Duration) (bool, error) // by the time since the start
		limit   time.Duration
		want    error
		ended   time.Duration
	}{
		"success":      {func(d time.Duration) (bool, error) { return d >= 3*time.Second, nil }, time.Hour, nil, 3 * time.Second},
		"denied":       {func(time.Duration) (bool, error) { return false, denied }, time.Hour, denied, 0},
		"never":        {func(time.Duration) (bool, error) { return false, silent }, time.Hour, silent, outage},
		"time is over": {func(time.Duration) (bool, error) { return false, silent }, 5 * time.Second, context.DeadlineExceeded, 5 * time.Second},
		"back": {func(d time.Duration) (bool, error) {
			if d%(50*time.Second) == 0 { // two outages, each shorter than the limit
				return d == 100*time.Second, nil
			}
			return false, silent
		}, time.Hour, nil, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), x.limit)
				defer cancel()
				err := until(ctx, func() (bool, error) { return x.results(time.Since(began)) })
				if !errors.Is(err, x.want) || time.Since(began) != x.ended {
					t.Errorf("after %v: %v, want %v after %v", time.Since(began), err, x.want, x.ended)
				}
			})
		})
	}
}
