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
// wanted. problem is why agents ignore the network, or "". The store reports a problem of a Network's generation once.
// During an upgrade, agents of another version may report another text, and would otherwise overwrite it for ever.
func (s *Store) SetNetworkReady(ctx context.Context, network, problem string) error {
	k, err := s.kindOf(cluster.NetworksPrefix)
	if err != nil {
		return err
	}
	s.mu.Lock()
	have, before := s.networks[network], s.reported[network]
	s.mu.Unlock()
	c := metav1.Condition{Type: networkReady, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "agents use the network", ObservedGeneration: have.generation}
	if problem != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Ignored", message(problem)
	}
	report := c
	if c.LastTransitionTime = metav1.Now(); have.ready.Status == c.Status {
		c.LastTransitionTime = have.ready.LastTransitionTime
	}
	if c != have.ready && (report != before || have.ready.Type == "") { // a Network that was created again has none
		err = s.writeNetworkReady(ctx, k, network, c)
	}
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reported[network] = report
	}
	return err
}

// writeNetworkReady writes the condition, and leaves those of other writers.
func (s *Store) writeNetworkReady(ctx context.Context, k *kind, network string, c metav1.Condition) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": k.api.APIVersion, "kind": k.api.Kind, "metadata": map[string]string{"name": network},
		"status": map[string]any{"conditions": []metav1.Condition{c}},
	})
	if err != nil {
		return err
	}
	raw, err := Body(s.client.Patch(types.ApplyPatchType).AbsPath(k.path, network, "status").
		Param("fieldManager", "fairlead").Param("force", "true").Body(body).Do(ctx))
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
