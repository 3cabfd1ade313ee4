package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
)

// statuses writes the status of ClusterNetworkPolicies. Every agent knows what it should be, and writes what the API does
// not have after a time of its own: usually one agent writes, and the others see it before their time comes.
type statuses struct {
	e *Enforcer

	mu       sync.Mutex
	nodes    map[string]string        // all nodes, with why policy is not in force there
	policies map[string]clusterPolicy // as the API has them
	written  bool                     // somebody wrote conditions

	// Only for run.
	due     time.Time // when to write what differs; zero: nothing differs
	urgent  bool      // more than a number of pods differs
	count   time.Time // when to count all pods again
	numbers map[string]number
}

// number is the number of pods that a policy selects.
type number struct {
	generation int64 // of the policy
	pods       int
}

type clusterPolicy struct {
	generation int64
	conditions []metav1.Condition
}

// differs says what an object lacks.
type differs int

const (
	nothing differs = iota
	onlyNumber
	condition
)

// Conditions of a ClusterNetworkPolicy.
const (
	conditionAccepted   = "Accepted"    // all its parts are valid
	conditionProgrammed = "Programmed"  // it is in force on all nodes
	conditionSelects    = "SelectsPods" // it selects pods now; the message has their number
)

const (
	statusEvery  = time.Second           // interval of comparisons
	statusDelay  = 10 * time.Second      // shortest time until a write, so that agents of two versions cannot write all the time
	numberDelay  = 30 * time.Second      // the same if only a number of pods differs, because each write is an event for every node
	statusSpread = 20 * time.Millisecond // random part of it, for each node
	statusRetry  = time.Minute           // pause after a failure
	namedNodes   = 10                    // that a message names

	// Counting takes at most a hundredth of a processor, and is not repeated sooner than numberDelay.
	countShare = 100
)

// see notes an object as the API has it.
func (s *statuses) see(o object, deleted bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := o.(type) {
	case *corev1.Node:
		if s.nodes[o.Name] = policy.FromNode(o).Problem; deleted {
			delete(s.nodes, o.Name)
		}
	case *v1alpha2.ClusterNetworkPolicy:
		s.written = s.written || !slices.Equal(s.policies[o.Name].conditions, o.Status.Conditions)
		if s.policies[o.Name] = (clusterPolicy{o.Generation, o.Status.Conditions}); deleted {
			delete(s.policies, o.Name)
		}
	}
}

// forget notes that an object has gone.
func (s *statuses) forget(resource, name string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch resource {
	case "nodes":
		delete(s.nodes, name)
	case "clusternetworkpolicies":
		delete(s.policies, name)
	}
}

// run writes statuses until the context ends.
func (s *statuses) run(ctx context.Context) {
	t := time.NewTicker(statusEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now()
		s.countPods(now.After(s.count))
		_, difference := s.stale()
		switch {
		case difference == nothing || s.othersWrote():
			s.due = time.Time{}
		case s.due.IsZero(), difference == condition && !s.urgent:
			s.urgent = difference == condition
			s.due = now.Add(s.delay() + rand.N(s.spread()))
		case now.After(s.due):
			s.due = time.Time{}
			s.countPods(true)
			stale, _ := s.stale()
			if err := s.write(ctx, stale); err != nil && ctx.Err() == nil {
				s.e.o.Log.Error("the status of network policies is not up to date", "error", err)
				s.due = now.Add(statusRetry + rand.N(s.spread()))
			}
		}
	}
}

func (s *statuses) delay() time.Duration {
	if s.urgent {
		return statusDelay
	}
	return numberDelay
}

// othersWrote reports whether somebody wrote conditions since the last call. What still differs then waits again: if pods
// come and go all the time, one agent writes, not all.
func (s *statuses) othersWrote() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	written := s.written
	s.written = false
	return written
}

// countPods counts the pods that each policy selects, or each new or changed policy.
func (s *statuses) countPods(all bool) {
	began, numbers := time.Now(), map[string]number{}
	for name, generation := range s.generations() {
		n, known := s.numbers[name]
		if all || !known || n.generation != generation {
			s.e.mu.Lock()
			n = number{generation, s.e.compiler.Selected(policy.ClusterPolicyID(name))}
			s.e.mu.Unlock()
		}
		numbers[name] = n
	}
	if s.numbers = numbers; all {
		s.count = time.Now().Add(max(numberDelay, countShare*time.Since(began)))
	}
}

// generations returns the generation of each policy.
func (s *statuses) generations() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int64{}
	for name, p := range s.policies {
		out[name] = p.generation
	}
	return out
}

func (s *statuses) spread() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(len(s.nodes)+1) * statusSpread
}

// stale returns the conditions of the policies that have others, or none.
func (s *statuses) stale() (out map[string][]metav1.Condition, most differs) {
	problems := s.problems()
	s.mu.Lock()
	defer s.mu.Unlock()
	out = map[string][]metav1.Condition{}
	programmed := s.programmed()
	for name, p := range s.policies {
		invalid, known := problems[name]
		if !known {
			continue // the API's objects are not complete
		}
		n, counted := s.numbers[name]
		if !counted {
			continue // it is new
		}
		want := []metav1.Condition{acceptedCondition(invalid), programmed, selectsCondition(n.pods)}
		if d := p.complete(want); d != nothing {
			out[name], most = want, max(most, d)
		}
	}
	return out, most
}

// problems returns what is invalid in each ClusterNetworkPolicy, or nothing before all objects are known.
func (s *statuses) problems() map[string][]string {
	names := s.generations()
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	out := map[string][]string{}
	if len(s.e.missing) == 0 {
		for name := range names {
			out[name] = s.e.compiler.ProblemsOf(policy.ClusterPolicyID(name))
		}
	}
	return out
}

// complete completes wanted conditions. It returns what the policy does not have.
func (p clusterPolicy) complete(want []metav1.Condition) (most differs) {
	for i := range want {
		w := &want[i]
		w.ObservedGeneration, w.LastTransitionTime = p.generation, metav1.Now()
		j := slices.IndexFunc(p.conditions, func(c metav1.Condition) bool { return c.Type == w.Type })
		if j >= 0 && p.conditions[j].Status == w.Status {
			w.LastTransitionTime = p.conditions[j].LastTransitionTime
		}
		switch {
		case j >= 0 && p.conditions[j] == *w:
		case w.Type == conditionSelects && j >= 0 && p.conditions[j].ObservedGeneration == w.ObservedGeneration:
			most = max(most, onlyNumber)
		default:
			most = condition
		}
	}
	return most
}

func selectsCondition(pods int) metav1.Condition {
	c := metav1.Condition{Type: conditionSelects, Status: metav1.ConditionTrue, Reason: "Counted", Message: fmt.Sprintf("number of pods: %d", pods)}
	if pods == 0 {
		c.Status = metav1.ConditionFalse
	}
	return c
}

func acceptedCondition(invalid []string) metav1.Condition {
	if len(invalid) == 0 {
		return metav1.Condition{Type: conditionAccepted, Status: metav1.ConditionTrue, Reason: "Valid", Message: "all parts are valid"}
	}
	const longest = 1000
	text := strings.Join(invalid, "\n")
	return metav1.Condition{Type: conditionAccepted, Status: metav1.ConditionFalse, Reason: "Invalid", Message: strings.ToValidUTF8(text[:min(len(text), longest)], "")}
}

// programmed returns the condition that names the nodes where policy is not in force.
func (s *statuses) programmed() metav1.Condition {
	var failing []string
	for name, problem := range s.nodes {
		if problem != "" {
			failing = append(failing, name)
		}
	}
	if len(failing) == 0 {
		return metav1.Condition{Type: conditionProgrammed, Status: metav1.ConditionTrue, Reason: "InForce", Message: "no agent reports a problem"}
	}
	slices.Sort(failing)
	text := fmt.Sprintf("policy is not in force on %d nodes, or not up to date: %s", len(failing), strings.Join(failing[:min(len(failing), namedNodes)], ", "))
	return metav1.Condition{Type: conditionProgrammed, Status: metav1.ConditionFalse, Reason: "NotInForce", Message: text}
}

// write writes the conditions of policies. It leaves those of other writers.
func (s *statuses) write(ctx context.Context, stale map[string][]metav1.Condition) error {
	c, err := client(s.e.o.Config, clusterPolicyVersion)
	if err != nil {
		return err
	}
	var errs []error
	for name, conditions := range stale {
		body, err := json.Marshal(map[string]any{
			"apiVersion": clusterPolicyVersion.String(), "kind": "ClusterNetworkPolicy", "metadata": map[string]any{"name": name},
			"status": map[string]any{"conditions": conditions},
		})
		if err != nil {
			return err
		}
		err = c.Patch(types.ApplyPatchType).Resource("clusternetworkpolicies").Name(name).SubResource("status").
			Param("fieldManager", "fairlead").Param("force", "true").Body(body).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) { // it may have been deleted meanwhile
			errs = append(errs, fmt.Errorf("ClusterNetworkPolicy %s: %w", name, err))
			if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
				break // the API does not answer
			}
		}
	}
	return errors.Join(errs...)
}
