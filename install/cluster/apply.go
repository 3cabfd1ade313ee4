package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/agent/store/kube"
)

// manager is the field manager of the objects' fields.
const manager = "fairlead"

// The actions of a Change.
const (
	Created   = "created"
	Changed   = "changed"
	Unchanged = "unchanged"
)

// Change is one object that was changed, or would be.
type Change struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Action    string   `json:"action"`
	Fields    []string `json:"fields,omitempty"` // "spec.replicas: 1 -> 2"
}

// Apply applies objects in their order by server-side apply, and calls each after each of them. After the definitions,
// it waits until the API serves them. With dry, the API validates the objects and stores nothing.
func (c *Client) Apply(ctx context.Context, objects []*Object, dry bool, each func(Change)) error {
	absent := map[string]bool{} // namespaces, with dry
	served := dry
	for _, o := range objects {
		if !served && o.GetKind() != "Namespace" && o.GetKind() != "CustomResourceDefinition" {
			if err := c.established(ctx, objects); err != nil {
				return err
			}
			served = true
		}
		change := Change{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Action: Created}
		if dry && absent[o.GetNamespace()] {
			each(change)
			continue
		}
		if err := c.apply(ctx, o, dry, &change); err != nil {
			return err
		}
		if change.Action == Created && o.GetKind() == "Namespace" {
			absent[o.GetName()] = true
		}
		each(change)
	}
	return nil
}

// apply applies one object.
func (c *Client) apply(ctx context.Context, o *Object, dry bool, change *Change) error {
	path, err := objectPath(o)
	if err != nil {
		return err
	}
	before, after := map[string]any{}, map[string]any{}
	err = c.get(ctx, &before, path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	found := err == nil
	if found && o.GetKind() == "Namespace" && (&Object{Object: before}).GetLabels()[nameLabel] == "" {
		o = withoutName(o)
	}
	body, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	r := c.rest.Patch(types.ApplyYAMLPatchType).AbsPath(path).Param("fieldManager", manager).Param("force", "true").Body(body)
	if dry {
		r = r.Param("dryRun", "All")
	}
	raw, err := kube.Body(r.Do(ctx))
	if err != nil {
		return c.Explain("apply "+title(o), err)
	}
	if err := json.Unmarshal(raw, &after); err != nil {
		return fmt.Errorf("apply %s: %w", title(o), err)
	}
	if found {
		change.Fields, change.Action = differences(before, after), Unchanged
		if len(change.Fields) > 0 {
			change.Action = Changed
		}
	}
	return nil
}

// withoutName returns a copy of an object without the label by which Uninstall knows its own objects. A namespace that
// somebody else created stays.
func withoutName(o *Object) *Object {
	o = o.DeepCopy()
	labels := o.GetLabels()
	delete(labels, nameLabel)
	o.SetLabels(labels)
	return o
}

// poll is the time between two reads of what a command waits for.
const poll = time.Second

// establishTimeout limits the wait for the API to serve a definition, which takes less than a second.
const establishTimeout = 30 * time.Second

// established waits until the API serves the definitions.
func (c *Client) established(ctx context.Context, objects []*Object) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		err := until(ctx, func() (bool, error) {
			var d struct {
				Status struct{ Conditions []condition }
			}
			if err := c.get(ctx, &d, pathOf(o.GetKind(), "")+"/"+o.GetName()); err != nil {
				return false, err
			}
			for _, x := range d.Status.Conditions {
				if x.Type == "NamesAccepted" && x.Status == "False" {
					return false, fmt.Errorf("the API does not accept the definition %s: %s", o.GetName(), x.Message)
				}
				if x.Type == "Established" && x.Status == "True" {
					return true, nil
				}
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("wait for the definition %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// condition is one of an object's conditions.
type condition struct{ Type, Status, Reason, Message string }

// outage limits how long requests may fail in a row while a command waits. An API server restarts within it.
const outage = time.Minute

// until calls done again and again until it returns true, an error that stays, or the context ends.
func until(ctx context.Context, done func() (bool, error)) error {
	var failing time.Time
	for {
		ok, err := done()
		switch {
		case err == nil && ok:
			return nil
		case err == nil:
			failing = time.Time{}
		case !passes(err):
			return err
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) >= outage && ctx.Err() == nil:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// passes reports whether an error may be gone soon: the API server restarts, is overloaded, or compacted a list between
// two of its pages.
func passes(err error) bool {
	if _, ok := errors.AsType[noAnswerError](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && (status.ErrStatus.Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsResourceExpired(err))
}
