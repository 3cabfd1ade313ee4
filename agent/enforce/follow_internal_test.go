package enforce

import (
	"context"
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
	f := &follower{names: map[string]bool{"/a": true}}
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
