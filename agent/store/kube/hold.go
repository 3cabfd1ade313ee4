package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// A session is a Lease that belongs to its Node. Nobody renews it: thousands of agents would write to the API all the
// time. It ends when its agent deletes it, when the Node is deleted, or when the Node is in another boot: then the kubelet
// of a machine that replaced the holder, or of the holder after a restart, has reported its own boot ID. An agent that
// lost its session notices at its next commit, which verifies the Lease.

// leaseSpec is the part of a Lease's spec that we use (coordination.k8s.io/v1).
type leaseSpec struct {
	HolderIdentity string           `json:"holderIdentity,omitempty"`
	AcquireTime    metav1.MicroTime `json:"acquireTime"`
}

func (o *object) setHolder(name string) (err error) {
	o.Spec, err = json.Marshal(leaseSpec{HolderIdentity: name, AcquireTime: metav1.NowMicro()})
	return err
}

// bootOf returns the boot ID in a session's value, or "". The value is the one of package session.
func bootOf(e store.Entry) string {
	var v struct {
		Instance string `json:"instance"`
	}
	_ = json.Unmarshal(e.Value, &v) // other values have none
	boot, _, _ := strings.Cut(v.Instance, " ")
	return boot
}

// hasEnded reports whether a session is one of an earlier boot of its node.
func hasEnded(session store.Entry, n *corev1.Node) bool {
	held, now := bootOf(session), n.Status.NodeInfo.BootID
	return held != "" && now != "" && held != now
}

// sessionIsHeld reports whether a session's key exists, and whether its session has not ended.
func (s *Store) sessionIsHeld(ctx context.Context, e store.Entry) (bool, error) {
	n, err := s.node(ctx, strings.TrimPrefix(e.Key, cluster.AlivePrefix))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // Kubernetes is about to delete it
	}
	return err == nil && !hasEnded(e, n), err
}

// NodeBoot returns the boot ID in a Node's status, or "" if there is none.
func (s *Store) NodeBoot(ctx context.Context, node string) (string, error) {
	n, err := s.node(ctx, node)
	return n.Status.NodeInfo.BootID, err
}

// withoutEnded removes the sessions that have ended, and those of nodes that are not Ready, from a list.
func (s *Store) withoutEnded(ctx context.Context, list []store.Entry) (out []store.Entry, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	nodes := map[string]*corev1.Node{}
	if _, err := s.eachNode(ctx, func(n *corev1.Node) { nodes[cluster.AliveKey(n.Name)] = n }); err != nil {
		return nil, err
	}
	for _, e := range list {
		if n := nodes[e.Key]; n != nil && !hasEnded(e, n) && isReady(n) {
			out = append(out, e)
		}
	}
	return out, nil
}

// isReady reports whether the kubelet reports a Node as ready, or whether no kubelet ever did.
func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return true
}

// Hold implements store.Store for keys below cluster.AlivePrefix. The Lease belongs to the key's Node, so that Kubernetes
// deletes both. It does not expire after a time, so Lost is never closed.
func (s *Store) Hold(ctx context.Context, key string, value []byte, _ time.Duration) (*store.Held, error) {
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
	name, err := k.name(key)
	if err != nil {
		return nil, err
	}
	node := strings.TrimPrefix(key, k.prefix)
	owner, err := s.ownerNode(ctx, node)
	if err != nil {
		return nil, err
	}
	o := &object{TypeMeta: k.api, ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
	if err := k.pack(key, value, o); err != nil {
		return nil, err
	}
	if err := o.setHolder(node); err != nil {
		return nil, err
	}
	made, err := s.create(ctx, k, o)
	if apierrors.IsAlreadyExists(err) {
		if err := s.removeEnded(ctx, k, key); err != nil {
			return nil, err
		}
		made, err = s.create(ctx, k, o)
	}
	if err != nil {
		return nil, k.notCreated(store.Op{Key: key}, err)
	}
	s.mu.Lock()
	s.created[revisionOf(made)] = number(made.ResourceVersion)
	s.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	s.held.Go(func() {
		defer close(ended)
		defer context.AfterFunc(s.life, stop)()
		<-ctx.Done()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
		defer cancel()
		s.release(within, k, made)
	})
	return store.NewHeld(revisionOf(made), make(chan struct{}), func() { stop(); <-ended }), nil
}

// removeEnded deletes the Lease of a session that has ended.
func (s *Store) removeEnded(ctx context.Context, k *kind, key string) error {
	e, o, err := s.read(ctx, k, key)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	held, err := s.sessionIsHeld(ctx, e)
	if held || err != nil {
		return err // create finds that it is held
	}
	return gone(s.remove(ctx, k, o))
}

// release deletes a Lease unless it is another holder's by now.
func (s *Store) release(ctx context.Context, k *kind, o *object) {
	now, err := s.get(ctx, k, o.Name)
	if err == nil && now.UID == o.UID {
		_ = s.remove(ctx, k, now)
	}
}
