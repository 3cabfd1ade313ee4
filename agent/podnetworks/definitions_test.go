package podnetworks

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store/kube"
	"github.com/fairlead/fairlead/internal/kubetest"
)

// TestShortWatches checks that watches that the API ends at once are not repeated at once.
func TestShortWatches(t *testing.T) {
	t.Parallel()
	url, watches := kubetest.EndWatches(t)
	client, err := kube.Client(kube.Options{Config: &rest.Config{Host: url}})
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
