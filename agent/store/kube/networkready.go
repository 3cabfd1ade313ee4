package kube

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/agent/cluster"
)

// maxMessage is the maximum length of a condition's message, in bytes. The API allows more, but a person reads it.
const maxMessage = 1000

// message returns the start of a text, without a part of a character: JSON would have another one in its place.
func message(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}

// networkReady is the condition type Ready of a Network.
const networkReady = "Ready"

// networkState is the state of a Network in the last list or watch. The value of its key lacks it.
type networkState struct {
	generation int64
	ready      metav1.Condition
}

// noteNetwork stores the state of a Network. Other objects are ignored.
func (s *Store) noteNetwork(k *kind, o *object, deleted bool) {
	if k.prefix != cluster.NetworksPrefix || o.Name == "" {
		return
	}
	n := networkState{generation: o.Generation}
	var status struct{ Conditions []metav1.Condition }
	_ = json.Unmarshal(o.Status, &status) // the schema rejects others
	for _, c := range status.Conditions {
		if c.Type == networkReady {
			n.ready = c
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.networks[o.Name] = n; deleted {
		delete(s.networks, o.Name)
	}
}

// SetNetworkReady sets the condition Ready of a Network, unless the last list or watch of the Networks had it as
// wanted. problem is why agents ignore the network, or "".
func (s *Store) SetNetworkReady(ctx context.Context, network, problem string) error {
	k, err := s.kindOf(cluster.NetworksPrefix)
	if err != nil {
		return err
	}
	s.mu.Lock()
	have := s.networks[network]
	s.mu.Unlock()
	c := metav1.Condition{Type: networkReady, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "agents use the network", ObservedGeneration: have.generation, LastTransitionTime: metav1.Now()}
	if problem != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Ignored", message(problem)
	}
	if have.ready.Status == c.Status {
		c.LastTransitionTime = have.ready.LastTransitionTime
	}
	if c == have.ready {
		return nil
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []metav1.Condition{c}}})
	if err != nil {
		return err
	}
	raw, err := Body(s.client.Patch(types.MergePatchType).AbsPath(k.path, network, "status").Body(body).Do(ctx))
	if err = convert(err); errors.Is(err, os.ErrNotExist) {
		return nil // it was deleted meanwhile
	}
	if err != nil {
		return err
	}
	o, err := k.decode(raw)
	if err == nil {
		s.noteNetwork(k, o, false)
	}
	return err
}
