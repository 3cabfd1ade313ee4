package enforce

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestStatusOfOthersIsWritten checks that a policy whose status the API rejects keeps no other policy from its status.
func TestStatusOfOthersIsWritten(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if name := path.Base(path.Dir(r.URL.Path)); strings.HasPrefix(name, "bad") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422, "message": "%s is invalid"}`, name)
			return
		}
		fmt.Fprint(w, `{"kind": "ClusterNetworkPolicy", "apiVersion": "policy.networking.k8s.io/v1alpha2"}`)
	}))
	defer api.Close()
	s := &statuses{e: New(Options{Config: &rest.Config{Host: api.URL}, Log: slog.New(slog.DiscardHandler)})}
	stale := map[string][]metav1.Condition{}
	for _, name := range []string{"bad1", "bad2", "bad3", "good1", "good2", "good3"} {
		stale[name] = []metav1.Condition{acceptedCondition(nil)}
	}
	err := s.write(t.Context(), stale)
	if n := int(asked.Load()); n != len(stale) {
		t.Errorf("%d requests, want %d", n, len(stale))
	}
	for name := range stale {
		if bad := strings.HasPrefix(name, "bad"); err == nil || strings.Contains(err.Error(), name) != bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}
