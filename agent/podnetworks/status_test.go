package podnetworks

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/agent/store/kube"
)

// answers returns a client of an API server that gives these answers, and the last one again and again.
func answers(t *testing.T, codes ...int) (c rest.Interface, asked *int) {
	t.Helper()
	asked = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		code := codes[min(*asked, len(codes)-1)]
		*asked++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: int32(code)}
		if status.Status = metav1.StatusSuccess; code >= http.StatusBadRequest {
			status.Status = metav1.StatusFailure
		}
		if code == http.StatusConflict {
			status.Reason = metav1.StatusReasonConflict
		}
		_ = json.NewEncoder(w).Encode(status)
	}))
	t.Cleanup(s.Close)
	c, err := kube.Client(kube.Options{Config: &rest.Config{Host: s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	return c, asked
}

// TestConflictAfterFailures checks that a conflict ends the attempts only after other conflicts, and not after failures of
// an API server that was away.
func TestConflictAfterFailures(t *testing.T) {
	t.Parallel()
	const away, conflict, ok = http.StatusServiceUnavailable, http.StatusConflict, http.StatusOK
	for _, c := range []struct {
		answers []int
		want    int // requests
	}{
		{[]int{away, away, away, away, away, conflict, ok}, 7},
		{[]int{conflict, away, conflict, away, conflict, ok}, 6},
		{[]int{conflict}, maxConflicts + 1},
	} {
		t.Run(fmt.Sprint(c.answers), func(t *testing.T) {
			t.Parallel()
			client, asked := answers(t, c.answers...)
			dir := podstate.Open(local.Open(t.TempDir(), t.TempDir()))
			record := &podstate.Pod{ContainerID: "c", IfName: "eth0", Network: "pods", Namespace: "shop", Name: "web", UID: "u", Attached: true}
			if err := dir.WritePod(record); err != nil {
				t.Fatal(err)
			}
			m := NewManager(Options{Client: client, Dir: dir, Log: slog.New(slog.DiscardHandler)})
			now := time.Now()
			for range 20 {
				if err := m.publishOnce(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				now = now.Add(2 * time.Minute)
			}
			if *asked != c.want {
				t.Errorf("%d requests, want %d", *asked, c.want)
			}
		})
	}
}

// TestUnreadablePodsAreLoggedOnce checks that a directory that cannot be read is logged once, and again after it could
// be read. Here, a file is in its place.
func TestUnreadablePodsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lib := t.TempDir()
		var log strings.Builder
		m := NewManager(Options{Dir: podstate.Open(local.Open(lib, t.TempDir())), Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.publish(ctx); close(done) }()
		pods := filepath.Join(lib, "fairlead", "pods")
		if err := os.MkdirAll(filepath.Dir(pods), 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := os.WriteFile(pods, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if err := os.Remove(pods); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		stop()
		<-done
		if n := strings.Count(log.String(), "cannot be read"); n != 2 {
			t.Errorf("%d messages, want 2:\n%.1000s", n, log.String())
		}
	})
}
