package enforce

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// TestTypeInOtherVersion checks that policies stay while the API serves their type only in a version that the agent cannot
// read. Without the type, there are none.
func TestTypeInOtherVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		others []string
		known  bool
		fails  bool
	}{{nil, true, false}, {[]string{"v1beta1"}, true, true}, {[]string{"v1beta1"}, false, false}, {nil, false, false}} {
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
