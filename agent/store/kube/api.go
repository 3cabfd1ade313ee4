package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// pageSize is the number of objects that one request lists. answerWithin is the time limit until an answer begins, and the
// limit of a whole request that lists, or asks whether the API answers. The API server has the same limit, but a proxy in front
// of it may have none.
const (
	pageSize     = 500
	answerWithin = time.Minute
)

// convert returns an error of the API as one of store's. The error of an object that does not exist is os.ErrNotExist.
func convert(err error) error {
	status, known := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
		return nil
	case !known, apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		status.ErrStatus.Code >= http.StatusInternalServerError:
		return fmt.Errorf("the Kubernetes API: %w: %w", err, store.ErrUnavailable)
	case apierrors.IsGone(err), apierrors.IsResourceExpired(err):
		return fmt.Errorf("%w: %w", err, store.ErrCompacted)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", err, os.ErrNotExist)
	}
	return fmt.Errorf("the Kubernetes API: %w", err)
}

// Body returns the body of an answer, or the error that the API server states in it. Of an error, Result.Raw knows the status
// code only.
func Body(r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	return r.Raw()
}

// CheckList returns an error if an answer is not a list of the API, which has a revision. A proxy may answer by itself, for
// example with {"error": "log in"}. That is not an empty list.
func CheckList(m metav1.ListMeta) error {
	if m.ResourceVersion != "" {
		return nil
	}
	return convert(errors.New("the answer is not a list of the API, because it has no resourceVersion: look for a proxy that answers in its place"))
}

// ping returns nil if the API answers. Whoever reads a key that no object can have wants to know that.
func (s *Store) ping(ctx context.Context) error {
	return convert(s.client.Get().AbsPath("/readyz").Timeout(answerWithin).Do(ctx).Error())
}

func (s *Store) get(ctx context.Context, k *kind, name string) (*object, error) {
	raw, err := Body(s.client.Get().AbsPath(k.path, name).Do(ctx))
	if err != nil {
		return nil, convert(err)
	}
	return k.decode(raw)
}

func (k *kind) decode(raw []byte) (*object, error) {
	o := &object{}
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, fmt.Errorf("read a %s: %w", k.api.Kind, err)
	}
	o.TypeMeta = k.api // items of a list have none
	return o, nil
}

// create creates an object for a key. The error satisfies apierrors.IsAlreadyExists if the name is taken.
func (s *Store) create(ctx context.Context, k *kind, o *object) (*object, error) {
	return k.send(ctx, s.client.Post().AbsPath(k.path), o)
}

// update replaces an object. The API compares its resourceVersion.
func (s *Store) update(ctx context.Context, k *kind, o *object) (*object, error) {
	return k.send(ctx, s.client.Put().AbsPath(k.path, o.Name), o)
}

// send sends an object and returns the one that the API stored.
func (k *kind) send(ctx context.Context, r *rest.Request, o *object) (*object, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	raw, err := Body(r.SetHeader("Content-Type", "application/json").Body(body).Do(ctx))
	if err != nil {
		return nil, err
	}
	return k.decode(raw)
}

// remove deletes an object if it is the one that the caller read.
func (s *Store) remove(ctx context.Context, k *kind, o *object) error {
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
	})
	if err != nil {
		return err
	}
	return s.client.Delete().AbsPath(k.path, o.Name).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

// list calls f for each object, page by page, and returns the revision of the list.
func (s *Store) list(ctx context.Context, k *kind, name string, f func(*object)) (int64, error) {
	next := ""
	for {
		r := onlyNamed(s.client.Get().AbsPath(k.path), name).Timeout(answerWithin)
		raw, err := Body(r.Param("limit", strconv.Itoa(pageSize)).Param("continue", next).Do(ctx))
		if err != nil {
			return 0, k.notListed(err)
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []*object       `json:"items"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return 0, fmt.Errorf("read a list of %s: %w", k.api.Kind, err)
		}
		if err := CheckList(page.Metadata); err != nil {
			return 0, err
		}
		for _, o := range page.Items {
			o.TypeMeta = k.api
			f(o)
		}
		if next = page.Metadata.Continue; next == "" {
			return number(page.Metadata.ResourceVersion), nil
		}
	}
}

// position returns the revision of a resource now.
func (s *Store) position(ctx context.Context, k *kind) (int64, error) {
	path := k.path
	if k.prefix == cluster.NodesPrefix {
		path = nodesPath
	}
	raw, err := Body(s.client.Get().AbsPath(path).Timeout(answerWithin).Param("limit", "1").SetHeader("Accept", metadataOnlyList).Do(ctx))
	if err != nil {
		return 0, k.notListed(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(raw, &list); err != nil {
		return 0, fmt.Errorf("read a list of %s: %w", k.prefix, err)
	}
	return number(list.ResourceVersion), CheckList(list.ListMeta)
}

// onlyNamed selects the object with a name, or all objects if it is "".
func onlyNamed(r *rest.Request, name string) *rest.Request {
	if name != "" {
		r = r.Param("fieldSelector", "metadata.name="+name)
	}
	return r
}

// event is one line of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch calls f for each change of a resource after a revision, until the watch ends. Its caller repeats it: the client must
// not, because the caller would believe for that time that the watch has begun.
func (s *Store) watch(ctx context.Context, k *kind, name string, after int64, f func(o *object, deleted bool) error) error {
	body, err := onlyNamed(s.client.Get().AbsPath(k.path), name).Param("watch", "true").Param("allowWatchBookmarks", "true").
		Param("resourceVersion", format(after)).MaxRetries(0).Stream(ctx)
	if err != nil {
		return k.notListed(err)
	}
	defer body.Close()
	began, lines := time.Now(), json.NewDecoder(body)
	for {
		var e event
		if err := lines.Decode(&e); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, io.EOF) || time.Since(began) >= ShortWatch {
				return errWatchEnded
			}
			return fmt.Errorf("watch %s: %w: %w", k.api.Kind, err, store.ErrUnavailable)
		}
		if e.Type == "ERROR" {
			var status metav1.Status
			_ = json.Unmarshal(e.Object, &status)
			return convert(&apierrors.StatusError{ErrStatus: status})
		}
		o, err := k.decode(e.Object) // a bookmark has a revision and no name
		if err != nil {
			return err
		}
		if err := f(o, e.Type == "DELETED"); err != nil {
			return err
		}
	}
}

// errWatchEnded means that the API server ended a watch, as it does after some minutes, or that a proxy cut it, which many do
// after a minute without an event. Whether the API still answers, the next request shows.
var errWatchEnded = errors.New("the watch ended")

// patchNode sets the annotation of a Node and, with Options.Flannel, flannel's annotations.
func (s *Store) patchNode(ctx context.Context, name string, value []byte) (int64, error) {
	annotations := map[string]any{}
	if s.flannel != nil {
		var doc cluster.Node
		if err := json.Unmarshal(value, &doc); err != nil {
			return 0, err
		}
		annotations = s.flannel.Of(doc.FlannelLease)
	}
	annotations[nodeAnnotation] = string(value)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return 0, err
	}
	raw, err := Body(s.client.Patch(types.MergePatchType).AbsPath(nodesPath, name).SetHeader("Accept", metadataOnly).Body(body).Do(ctx))
	if err != nil {
		return 0, convert(err)
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &o); err != nil {
		return 0, fmt.Errorf("read node %s: %w", name, err)
	}
	if o.Annotations[nodeAnnotation] != string(value) {
		return 0, fmt.Errorf("the Kubernetes API did not store the annotation %s of node %s as written: look for an admission webhook or policy that changes Nodes", nodeAnnotation, name)
	}
	return number(o.ResourceVersion), nil
}

const (
	nodesPath    = "/api/v1/nodes"
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

	metadataOnlyList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)
