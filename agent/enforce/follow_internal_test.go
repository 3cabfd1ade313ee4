package enforce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestTypeDeletedWhileDisconnected verifies that policies end whose definition was deleted while the agent did not watch
// them, but not at once: an API server that starts may not have the definition yet.
func TestTypeDeletedWhileDisconnected(t *testing.T) {
	t.Parallel()
	var answer error
	f := &follower{names: map[string]bool{"/a": true}, otherVersions: func(context.Context) []string { return nil }}
	list := f.listIfKnown(func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &metav1.List{}, answer })
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "clusternetworkpolicies"}, "")
	for _, step := range []struct {
		answer error
		later  bool // than the wait
		fails  bool
	}{{nil, false, false}, {missing, false, true}, {missing, true, false}, {nil, false, false}, {missing, false, true}} {
		if answer = step.answer; step.later {
			f.gone = time.Now().Add(-withoutType)
		}
		if _, err := list(t.Context(), metav1.ListOptions{}); (err != nil) != step.fails {
			t.Errorf("%+v: %v", step, err)
		}
	}
}

// TestRefusedWatch checks that the agent reports an API that refuses to list or watch what policies depend on, until it does
// so again. One that does not answer, or is busy, is not reported.
func TestRefusedWatch(t *testing.T) {
	t.Parallel()
	e := newEnforcer(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)}, nil)
	e.inForce = true
	var answer error
	f := &follower{kind: kind{resource: "networkpolicies"}, e: e}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &metav1.List{}, answer },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.NewEmptyWatch(), answer
		},
	}
	f.noteRefusals(lw)
	group := schema.GroupResource{Group: "networking.k8s.io", Resource: "networkpolicies"}
	forbidden := apierrors.NewForbidden(group, "", errors.New("no role"))
	for _, step := range []struct {
		watch  bool
		answer error
		want   string // in the problem
	}{
		{true, syscall.ECONNREFUSED, ""},
		{true, apierrors.NewTooManyRequests("busy", 1), ""},
		{true, apierrors.NewServiceUnavailable("starting"), ""},
		{true, apierrors.NewResourceExpired("old"), ""},
		{true, fmt.Errorf("watch: %w", forbidden), "the agent cannot follow the Kubernetes API: watch: networkpolicies.networking.k8s.io is forbidden"},
		{false, nil, "forbidden"}, // the watch is refused still
		{true, syscall.ECONNREFUSED, ""},
		{false, forbidden, "forbidden"},
		{true, nil, ""},
		{true, apierrors.NewInternalError(errors.New("conversion failed")), "conversion failed"},
		{true, nil, ""},
	} {
		if answer = step.answer; step.watch {
			_, _ = lw.WatchFuncWithContext(t.Context(), metav1.ListOptions{})
		} else {
			_, _ = lw.ListWithContextFunc(t.Context(), metav1.ListOptions{})
		}
		problem, inForce := e.Problem(), e.gauges()[0]
		if !strings.Contains(problem, step.want) || (problem == "") != (step.want == "") || (inForce == 1) != (step.want == "") {
			t.Errorf("%+v: problem %q, fairlead_policy_in_force %v", step, problem, inForce)
		}
	}
}

// TestTypeInOtherVersion checks that policies are unknown while the API has them only in a version that the agent cannot
// read, also to an agent that starts. Without the type, there are none.
func TestTypeInOtherVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		others []string
		known  bool
		fails  bool
	}{{nil, true, false}, {[]string{"v1beta1"}, true, true}, {[]string{"v1beta1"}, false, true}, {nil, false, false}} {
		f := &follower{
			kind: kind{resource: "clusternetworkpolicies", group: clusterPolicyVersion}, e: newEnforcer(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)}, nil),
			names: map[string]bool{}, gone: time.Now().Add(-time.Hour), otherVersions: func(context.Context) []string { return c.others },
		}
		if c.known {
			f.names["/deny"] = true
		}
		list := f.listIfKnown(func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: f.resource}, "")
		})
		_, err := list(t.Context(), metav1.ListOptions{})
		if (err != nil) != c.fails || err != nil && !strings.Contains(err.Error(), "only in v1beta1, and network policy reads v1alpha2") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestVersionsWithObjects checks that a type in another version matters only if it has objects.
func TestVersionsWithObjects(t *testing.T) {
	t.Parallel()
	items := `{}`
	answers := map[string]func() string{
		"/apis/policy.networking.k8s.io": func() string {
			return `{"versions": [{"groupVersion": "policy.networking.k8s.io/v1beta1", "version": "v1beta1"}, {"groupVersion": "policy.networking.k8s.io/v1", "version": "v1"}]}`
		},
		"/apis/policy.networking.k8s.io/v1beta1": func() string { return `{"resources": [{"name": "clusternetworkpolicies"}]}` },
		"/apis/policy.networking.k8s.io/v1":      func() string { return `{"resources": [{"name": "others"}]}` },
		"/apis/policy.networking.k8s.io/v1beta1/clusternetworkpolicies?limit=1": func() string {
			return items
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if answer := answers[q.URL.String()]; answer != nil && answer() != "" {
			_, _ = io.WriteString(w, answer())
			return
		}
		http.NotFound(w, q)
	}))
	defer server.Close()
	c, err := client(&rest.Config{Host: server.URL}, clusterPolicyVersion)
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string][]string{`{}`: nil, `{"items": [{"metadata": {"name": "deny"}}]}`: {"v1beta1"}, ``: {"v1beta1"}} {
		items = answer
		if got := versionsOf(t.Context(), c, clusterPolicyVersion.Group, "clusternetworkpolicies"); !slices.Equal(got, want) {
			t.Errorf("the list is %q: got %v, want %v", answer, got, want)
		}
	}
}

// TestExpiredWatches checks that a follower does not flood an API that ends each watch as too old.
func TestExpiredWatches(t *testing.T) {
	t.Parallel()
	var watches atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("watch") {
			watches.Add(1)
			fmt.Fprintln(w, `{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}}`)
			return
		}
		fmt.Fprint(w, `{"kind": "NetworkPolicyList", "apiVersion": "networking.k8s.io/v1", "metadata": {"resourceVersion": "1"}}`)
	}))
	defer api.Close()
	e := newEnforcer(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)}, nil)
	all := kinds()
	policies := all[slices.IndexFunc(all, func(k kind) bool { return k.resource == "networkpolicies" })]
	f := &follower{kind: policies, e: e, names: map[string]bool{}}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := f.run(ctx, &rest.Config{Host: api.URL}); err != nil {
		t.Error(err)
	}
	if n := watches.Load(); n < 1 || n > 10 {
		t.Errorf("%d watches in 3 seconds, want 1 to 10", n)
	}
}
