package enforce

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// setUnreadable notes why some policies cannot be read, or with "" that all can.
func (e *Enforcer) setUnreadable(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unreadable = shortened(why)
}

// setUnread notes why some attachments of this node cannot be read, or with "" that all can.
func (e *Enforcer) setUnread(why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unread = shortened(why)
}

// noteRefusals makes a follower note that the API refuses its requests, so that the node does not learn of changes. It does
// not note an API that does not answer: nobody can change a policy there.
func (f *follower) noteRefusals(lw *cache.ListWatch) {
	list, start := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		out, err := list(ctx, o)
		f.e.setRefused(f.resource, "list", err)
		return out, err
	}
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := start(ctx, o)
		if err == nil || o.SendInitialEvents == nil { // an API that cannot begin a watch with all objects is asked for a list
			f.e.setRefused(f.resource, "watch", err)
		}
		return w, err
	}
}

// setRefused notes the API's answer to a request. While a watch works, the follower does not list.
func (e *Enforcer) setRefused(resource, verb string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if delete(e.refused, resource+verb); isRefusal(err) {
		e.refused[resource+verb] = shortened(err.Error())
	} else if err == nil && verb == "watch" {
		delete(e.refused, resource+"list")
	}
}

// isRefusal reports whether the API answered a request with an error that another request is likely to get, too. After an
// expired version, the follower asks for another one.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code <= http.StatusInternalServerError
	}
}

// refusals says which requests the API refuses, or returns "". The caller holds the lock.
func (e *Enforcer) refusals() string {
	return shortened(strings.Join(slices.Sorted(maps.Values(e.refused)), "; "))
}

// shortened returns a reason in one line, which gets into the node's document in the store.
func shortened(why string) string {
	const longest = 300 // bytes
	why = strings.ReplaceAll(why, "\n", "; ")
	return strings.ToValidUTF8(why[:min(len(why), longest)], "")
}
