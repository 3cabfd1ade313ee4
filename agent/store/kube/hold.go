package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// A held key is a Lease that its holder renews. The API deletes no Leases. Others take one for expired after it did not
// change for its duration while they looked, so no two clocks are compared. The next holder deletes it.

// leaseSpec is the part of a Lease's spec that we use (coordination.k8s.io/v1).
type leaseSpec struct {
	HolderIdentity       string           `json:"holderIdentity,omitempty"`
	LeaseDurationSeconds int              `json:"leaseDurationSeconds"`
	RenewTime            metav1.MicroTime `json:"renewTime"`
}

func (o *object) setLease(ttl time.Duration) (err error) {
	seconds := max(1, int(ttl.Round(time.Second)/time.Second))
	holder := strings.TrimPrefix(o.Name, sessionName)
	o.Spec, err = json.Marshal(leaseSpec{HolderIdentity: holder, LeaseDurationSeconds: seconds, RenewTime: metav1.NowMicro()})
	return err
}

// isExpired reports whether a session's Lease was not renewed for its duration since this process saw it first.
func (s *Store) isExpired(o *object) bool {
	var spec leaseSpec
	if json.Unmarshal(o.Spec, &spec) != nil || spec.LeaseDurationSeconds == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.seen[o.Name]
	if was.resourceVersion != o.ResourceVersion {
		s.seen[o.Name] = sighting{o.ResourceVersion, time.Now()}
		return false
	}
	return time.Since(was.at) > time.Duration(spec.LeaseDurationSeconds)*time.Second
}

// Hold implements store.Store for keys below cluster.AlivePrefix. The Lease belongs to the key's Node, so that Kubernetes
// deletes both.
func (s *Store) Hold(ctx context.Context, key string, value []byte, ttl time.Duration) (*store.Held, error) {
	k, err := s.kindOf(key)
	if err == nil && k.prefix != cluster.AlivePrefix {
		err = fmt.Errorf("hold %s: want a key below %s", key, cluster.AlivePrefix)
	}
	if err != nil {
		return nil, err
	}
	if err := s.isOpen(); err != nil {
		return nil, err
	}
	if err := s.removeExpired(ctx, k, key); err != nil {
		return nil, err
	}
	name, err := k.name(key)
	if err != nil {
		return nil, err
	}
	owner, err := s.ownerNode(ctx, strings.TrimPrefix(key, k.prefix))
	if err != nil {
		return nil, err
	}
	o := &object{TypeMeta: k.api, ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
	if err := k.pack(key, value, o); err != nil {
		return nil, err
	}
	if err := o.setLease(ttl); err != nil {
		return nil, err
	}
	if o, err = s.create(ctx, k, o); err != nil {
		return nil, k.notCreated(store.Op{Key: key}, err)
	}
	ctx, stop := context.WithCancel(ctx)
	lost, ended := make(chan struct{}), make(chan struct{})
	s.held.Go(func() {
		defer close(ended)
		defer context.AfterFunc(s.life, stop)()
		s.renew(ctx, k, o, ttl, lost)
	})
	return store.NewHeld(revisionOf(o), lost, func() { stop(); <-ended }), nil
}

// removeExpired deletes the Lease of a holder that has gone.
func (s *Store) removeExpired(ctx context.Context, k *kind, key string) error {
	_, o, err := s.read(ctx, k, key)
	if o == nil || err == nil || !strings.HasPrefix(k.key(o), key) {
		return nil // there is none, or it is held, which create finds
	}
	return gone(s.remove(ctx, k, o))
}

// renew renews a Lease until the context ends, and then deletes it. It closes lost if the Lease is another one now, or
// could not be renewed for its duration.
func (s *Store) renew(ctx context.Context, k *kind, o *object, ttl time.Duration, lost chan struct{}) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
		defer cancel()
		s.release(ctx, k, o)
	}()
	tick := time.NewTicker(ttl / 4)
	defer tick.Stop()
	for renewed := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		within, cancel := context.WithTimeout(ctx, ttl/2)
		next, err := s.renewOnce(within, k, o, ttl)
		cancel()
		switch {
		case err == nil:
			o, renewed = next, time.Now()
		case ctx.Err() != nil:
			return
		case err == errOther, time.Since(renewed) > ttl:
			close(lost)
			return
		}
	}
}

// errOther means that a key has another object than the one that was held.
var errOther = fmt.Errorf("the key has another holder: %w", store.ErrConflict)

// renewOnce renews a Lease. If somebody changed it, it is read again.
func (s *Store) renewOnce(ctx context.Context, k *kind, o *object, ttl time.Duration) (*object, error) {
	next := *o
	if err := next.setLease(ttl); err != nil {
		return nil, err
	}
	made, err := s.update(ctx, k, &next)
	switch {
	case apierrors.IsNotFound(err):
		return nil, errOther
	case apierrors.IsConflict(err):
		now, err := s.get(ctx, k, o.Name)
		if errors.Is(err, os.ErrNotExist) || err == nil && now.UID != o.UID {
			return nil, errOther
		}
		return now, err
	}
	return made, err
}

// release deletes a Lease unless it is another holder's by now.
func (s *Store) release(ctx context.Context, k *kind, o *object) {
	now, err := s.get(ctx, k, o.Name)
	if err == nil && now.UID == o.UID && now.Annotations[annotation] == o.Annotations[annotation] {
		_ = s.remove(ctx, k, now) // it expires otherwise
	}
}
