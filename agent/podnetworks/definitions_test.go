package podnetworks

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store/kube"
)

// TestShortWatches checks that watches that the API ends at once are not repeated at once.
func TestShortWatches(t *testing.T) {
	t.Parallel()
	var watches atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			watches.Add(1)
			return
		}
		fmt.Fprint(w, `{"metadata": {"resourceVersion": "1"}}`)
	}))
	defer api.Close()
	client, err := kube.Client(kube.Options{Config: &rest.Config{Host: api.URL}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	NewManager(Options{Client: client, Dir: podstate.Open(local.Open(t.TempDir(), t.TempDir())), Log: slog.New(slog.DiscardHandler)}).follow(ctx)
	if n := watches.Load(); n != 1 {
		t.Errorf("%d watches in the first second, want 1", n)
	}
}
