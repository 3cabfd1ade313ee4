package kubetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// EndWatches starts an API server without objects that ends each watch at once. It returns its URL, and counts the watches.
func EndWatches(t testing.TB) (url string, watches *atomic.Int32) {
	t.Helper()
	watches = &atomic.Int32{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			watches.Add(1)
			return
		}
		fmt.Fprint(w, `{"metadata": {"resourceVersion": "1"}}`)
	}))
	t.Cleanup(api.Close)
	return api.URL, watches
}
