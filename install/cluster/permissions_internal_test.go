package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestPermissions checks that Plan reports a user who may change objects but not create them, before the first change.
func TestPermissions(t *testing.T) {
	t.Parallel()
	denied := "" // a verb
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Verb string }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status": {"allowed": %v}}`, review.Spec.ResourceAttributes.Verb != denied)
	}))
	defer api.Close()
	c, err := New(&rest.Config{Host: api.URL}, "x")
	if err != nil {
		t.Fatal(err)
	}
	set := &Object{Object: map[string]any{"kind": "DaemonSet"}}
	for _, x := range []struct {
		denied  string
		upgrade bool
		ok      bool
	}{{"", false, true}, {"", true, true}, {"patch", false, false}, {"patch", true, false}, {"create", false, false}, {"create", true, true}} {
		denied = x.denied
		err := c.checkPermissions(t.Context(), []*Object{set}, x.upgrade)
		if (err == nil) != x.ok || err != nil && !strings.Contains(err.Error(), "the user of x may not create: daemonsets\n") {
			t.Errorf("%+v: %v", x, err)
		}
	}
}
