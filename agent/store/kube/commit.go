package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// change is one change of a transaction that was made, with what undoes it.
type change struct {
	revision int64
	undo     func(context.Context) error
}

// undoFor is the time limit for undoing a transaction whose context has ended.
const undoFor = 10 * time.Second

// Commit implements store.Store. It checks all operations, makes the changes in order, and then checks again what the
// transaction only verifies: a session or a network may have gone meanwhile. What was made before a conflict is undone.
func (s *Store) Commit(ctx context.Context, ops ...store.Op) (revision int64, err error) {
	if err := errors.Join(s.isOpen(), store.CheckOps(ops)); err != nil {
		return 0, err
	}
	old, err := s.check(ctx, ops, nil)
	if err != nil {
		return 0, err
	}
	var made []change
	written := map[string]bool{}
	for _, o := range ops {
		if o.Verify || o.Below {
			continue
		}
		c, err := s.change(ctx, o, old[o.Key])
		if err != nil {
			return 0, s.takeBack(ctx, made, err)
		}
		if o.At != nil {
			*o.At = c.revision
		}
		revision = max(revision, c.revision)
		made, written[o.Key] = append(made, c), true
	}
	if len(made) < len(ops) && len(made) > 0 {
		if _, err := s.check(ctx, ops, written); err != nil {
			return 0, s.takeBack(ctx, made, err)
		}
	}
	return revision, nil
}

// takeBack undoes changes, the last one first.
func (s *Store) takeBack(ctx context.Context, made []change, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	for _, c := range slices.Backward(made) {
		if err := c.undo(ctx); err != nil {
			// A part stays. The caller cannot know which, as after a call without an answer.
			return fmt.Errorf("%w; undo a part of it: %w: %w", why, err, store.ErrUnavailable)
		}
	}
	return why
}

// check returns a conflict of all operations whose key is not as expected, or the objects of the keys that exist. After
// the changes, written has their keys, and only the others are checked.
func (s *Store) check(ctx context.Context, ops []store.Op, written map[string]bool) (old map[string]*object, err error) {
	var conflict []string
	old = map[string]*object{}
	for _, o := range ops {
		if written[o.Key] {
			continue
		}
		ok, have, err := s.isAsExpected(ctx, o, written)
		if err != nil {
			return nil, err
		}
		if !ok {
			conflict = append(conflict, o.Key)
		}
		old[o.Key] = have
	}
	if conflict != nil {
		return nil, &store.ConflictError{Keys: conflict}
	}
	return old, nil
}

func (s *Store) isAsExpected(ctx context.Context, o store.Op, written map[string]bool) (ok bool, old *object, err error) {
	if o.Below {
		entries, _, err := s.List(ctx, o.Key)
		return !slices.ContainsFunc(entries, func(e store.Entry) bool { return e.Revision > o.Expect && !written[e.Key] }), nil, err
	}
	k, err := s.kindOf(o.Key)
	if err != nil {
		return false, nil, err
	}
	if k.prefix == cluster.EndpointsPrefix || k.prefix == cluster.NodesPrefix && !o.Verify {
		return true, nil, nil // not stored, or written by one agent only
	}
	e, old, err := s.read(ctx, k, o.Key)
	if errors.Is(err, os.ErrNotExist) {
		return o.Expect == 0, nil, nil
	}
	return err == nil && unchanged(k, e.Revision, o.Expect), old, err
}

// unchanged reports whether an object was not written after the expected revision. The revision of a session says only
// which one it is.
func unchanged(k *kind, now, expect int64) bool {
	if k.prefix == cluster.AlivePrefix {
		return now == expect
	}
	return expect != 0 && now <= expect
}

// change makes one change of an object that check found. The API refuses it if the object has changed since.
func (s *Store) change(ctx context.Context, o store.Op, old *object) (change, error) {
	k, err := s.kindOf(o.Key)
	if err != nil {
		return change{}, err
	}
	nothing := func(context.Context) error { return nil }
	switch {
	case k.prefix == cluster.EndpointsPrefix:
		return change{o.Expect + 1, nothing}, nil
	case k.prefix == cluster.NodesPrefix && o.Value == nil:
		return change{}, s.RefuseToRemove(o.Key[len(k.prefix):])
	case k.prefix == cluster.NodesPrefix:
		revision, err := s.putNode(ctx, o.Key, o.Value)
		return change{revision, nothing}, err // a node's document is right in itself
	case o.Expect == 0 && o.Value == nil:
		return change{0, nothing}, nil // it does not exist, as wanted
	case o.Expect == 0:
		return s.add(ctx, k, o)
	case o.Value == nil:
		return s.drop(ctx, k, o, old)
	}
	return s.replace(ctx, k, o, old)
}

// failed returns the error of a change.
func failed(o store.Op, err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return &store.ConflictError{Keys: []string{o.Key}}
	}
	return fmt.Errorf("%s: %w", o.Key, convert(err))
}

// notCreated returns the error of a creation. The API does not find what the object should be created in.
func (k *kind) notCreated(o store.Op, err error) error {
	if apierrors.IsNotFound(err) {
		return k.unknown()
	}
	return failed(o, err)
}

// notListed returns the error of a list or a watch.
func (k *kind) notListed(err error) error {
	if apierrors.IsNotFound(err) && k.path != "" {
		return k.unknown()
	}
	return convert(err)
}

// unknown returns the error of a cluster that lacks a resource or the namespace of the Leases.
func (k *kind) unknown() error {
	return fmt.Errorf("%w: the Kubernetes API has no resource %s, because Fairlead's objects are not installed completely\nTo install them, type: fairlead kubernetes install", store.ErrUnavailable, k.path)
}

func (s *Store) add(ctx context.Context, k *kind, op store.Op) (change, error) {
	name, err := k.name(op.Key)
	if err != nil {
		return change{}, err
	}
	o := &object{TypeMeta: k.api, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: []byte("{}")}
	if err := k.pack(op.Key, op.Value, o); err != nil {
		return change{}, fmt.Errorf("%s: %w", op.Key, err)
	}
	made, err := s.create(ctx, k, o)
	if err != nil {
		return change{}, k.notCreated(op, err)
	}
	return change{revisionOf(made), func(ctx context.Context) error { return gone(s.remove(ctx, k, made)) }}, nil
}

func (s *Store) replace(ctx context.Context, k *kind, op store.Op, old *object) (change, error) {
	next := *old
	if err := k.pack(op.Key, op.Value, &next); err != nil {
		return change{}, fmt.Errorf("%s: %w", op.Key, err)
	}
	made, err := s.update(ctx, k, &next)
	if err != nil {
		return change{}, failed(op, err)
	}
	return change{revisionOf(made), func(ctx context.Context) error {
		back := *made
		back.Spec, back.Annotations = old.Spec, old.Annotations
		_, err := s.update(ctx, k, &back)
		return gone(err)
	}}, nil
}

// drop deletes an object. The revision is larger than the object's. The admission policy fairlead-own-node forbids an
// agent to undo the deletion of another node's block.
func (s *Store) drop(ctx context.Context, k *kind, op store.Op, old *object) (change, error) {
	if err := s.remove(ctx, k, old); err != nil {
		return change{}, failed(op, err)
	}
	return change{op.Expect + 1, func(ctx context.Context) error {
		again := &object{TypeMeta: old.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, Annotations: old.Annotations}, Spec: old.Spec}
		_, err := s.create(ctx, k, again)
		return gone(err)
	}}, nil
}

// gone ignores that somebody else changed an object that a transaction had made: then it is theirs.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return convert(err)
}
