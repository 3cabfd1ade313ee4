package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// agentLabel selects the agents' pods.
const agentLabel = "app.kubernetes.io/name=fairlead"

// agentName is the name of the DaemonSet, its ServiceAccount and its ConfigMap.
const agentName = "fairlead"

// Progress is the state of one node while a command waits for it.
type Progress struct{ Node, State string }

// ready is the state of a node that the command no longer waits for.
const ready = "ready"

// TimeoutError reports the nodes that did not become ready in time.
type TimeoutError struct {
	After    time.Duration
	Problems []Problem
}

func (e *TimeoutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the nodes were not ready after %s", e.After)
	for _, p := range e.Problems {
		b.WriteString("\n" + p.String())
	}
	b.WriteString("\nEach node becomes ready when its problem is fixed; you need not install again. To see the state, type: fairlead kubernetes status")
	return b.String()
}

// Wait waits until every agent runs its current version and every node with an agent is Ready. It calls each for every
// change of a node's state. On time-out it returns a *TimeoutError.
func (c *Client) Wait(ctx context.Context, namespace string, timeout time.Duration, each func(Progress)) error {
	return c.waitUntil(ctx, namespace, timeout, each, func(s observation) bool { return s.done() })
}

// waitUntil is Wait with another condition.
func (c *Client) waitUntil(ctx context.Context, namespace string, timeout time.Duration, each func(Progress), done func(observation) bool) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	seen := map[string]string{}
	err := until(limited, func() (bool, error) {
		s, err := c.observe(limited, namespace)
		if err != nil {
			return false, err
		}
		for _, n := range s.nodes {
			if state := n.state(s); seen[n.name] != state {
				seen[n.name] = state
				each(Progress{n.name, state})
			}
		}
		return done(s), nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return err
	}
	fresh, cancel := context.WithTimeout(ctx, diagnoseTimeout)
	defer cancel()
	s, err := c.observe(fresh, namespace)
	if err != nil {
		return err
	}
	return &TimeoutError{After: timeout, Problems: c.problems(fresh, s)}
}

// diagnoseTimeout limits the search for reasons after a time-out.
const diagnoseTimeout = 20 * time.Second

// observation is the state of all agents at one time.
type observation struct {
	set      appsv1.DaemonSet
	revision string      // of the pods' template
	nodes    []nodeState // with an agent, or without one
}

// nodeState is a node with its agent's pod.
type nodeState struct {
	name string
	node *corev1.Node // nil: a pod is on a node that does not exist
	pod  *corev1.Pod  // nil: no agent
}

// observe reads the DaemonSet, its pods and all Nodes.
func (c *Client) observe(ctx context.Context, namespace string) (s observation, err error) {
	if err := c.get(ctx, &s.set, pathOf("DaemonSet", namespace)+"/"+agentName); err != nil {
		return s, err
	}
	if s.revision, err = c.currentRevision(ctx, &s.set); err != nil {
		return s, err
	}
	pods, err := list[corev1.Pod](ctx, c, pathOf("Pod", namespace), agentLabel)
	if err != nil {
		return s, err
	}
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), "")
	if err != nil {
		return s, err
	}
	byName := map[string]*nodeState{}
	for i := range nodes {
		byName[nodes[i].Name] = &nodeState{name: nodes[i].Name, node: &nodes[i]}
	}
	for i := range pods {
		p := &pods[i]
		if !ownedBy(p, agentName) {
			continue
		}
		n := byName[nodeOf(p)]
		if n == nil {
			n = &nodeState{name: nodeOf(p)}
			byName[n.name] = n
		}
		if n.pod == nil || n.pod.DeletionTimestamp != nil {
			n.pod = p // during an update, the new pod counts
		}
	}
	for _, name := range sortedKeys(byName) {
		s.nodes = append(s.nodes, *byName[name])
	}
	return s, nil
}

// ownedBy reports whether a DaemonSet has a pod.
func ownedBy(p *corev1.Pod, set string) bool {
	for _, o := range p.OwnerReferences {
		if o.Kind == "DaemonSet" && o.Name == set {
			return true
		}
	}
	return false
}

// nodeOf returns the node of a pod of a DaemonSet. Before the scheduler binds the pod, its affinity has the node.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil || p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, t := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			if f.Key == "metadata.name" && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// done reports whether the rollout is complete.
func (s *observation) done() bool {
	st := s.set.Status
	if st.ObservedGeneration < s.set.Generation || st.DesiredNumberScheduled == 0 || st.UpdatedNumberScheduled < st.DesiredNumberScheduled || st.NumberAvailable < st.DesiredNumberScheduled {
		return false
	}
	for _, n := range s.nodes {
		if n.pod != nil && n.state(*s) != ready {
			return false
		}
	}
	return true
}

// state describes a node.
func (n *nodeState) state(s observation) string {
	switch {
	case n.pod == nil:
		return "no agent"
	case n.pod.DeletionTimestamp != nil:
		return "the old agent ends"
	case !podReady(n.pod):
		return "agent: " + podState(n.pod)
	case s.set.Status.ObservedGeneration < s.set.Generation || n.outdated(s):
		return "waits for its new agent"
	case n.node == nil:
		return "the Node does not exist"
	}
	if is, why := nodeReady(n.node); !is {
		if _, detail, has := strings.Cut(why, "message:"); has { // after "container runtime network not ready: ..."
			why = detail
		}
		return "agent ready, node not Ready: " + why
	}
	return ready
}

// outdated reports whether the agent is of another revision of the DaemonSet's template than the current one.
func (n *nodeState) outdated(s observation) bool {
	return s.revision != "" && n.pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] != s.revision
}

// currentRevision returns the hash by which the pods of the current template are labelled; "": the controller has not
// made it yet.
func (c *Client) currentRevision(ctx context.Context, set *appsv1.DaemonSet) (string, error) {
	all, err := list[appsv1.ControllerRevision](ctx, c, "/apis/apps/v1/namespaces/"+set.Namespace+"/controllerrevisions", agentLabel)
	newest, hash := int64(0), ""
	for _, r := range all {
		if metav1.IsControlledBy(&r, set) && r.Revision > newest {
			newest, hash = r.Revision, r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
		}
	}
	return hash, err
}

func podReady(p *corev1.Pod) bool {
	for _, x := range p.Status.Conditions {
		if x.Type == corev1.PodReady {
			return x.Status == corev1.ConditionTrue
		}
	}
	return false
}

func nodeReady(n *corev1.Node) (bool, string) {
	for _, x := range n.Status.Conditions {
		if x.Type == corev1.NodeReady {
			return x.Status == corev1.ConditionTrue, x.Message
		}
	}
	return false, "its kubelet has not reported yet"
}

// podState returns why a pod is not ready, in a few words.
func podState(p *corev1.Pod) string {
	for _, s := range p.Status.InitContainerStatuses {
		if s.State.Running != nil {
			return s.Name + " runs"
		}
		if text := containerState(s); text != "" {
			return text
		}
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Running != nil && !s.Ready {
			return s.Name + " runs, but is not ready"
		}
		if text := containerState(s); text != "" {
			return text
		}
	}
	if p.Spec.NodeName == "" {
		return "not scheduled"
	}
	return string(p.Status.Phase)
}

// containerState returns why a container does not run, or "".
func containerState(s corev1.ContainerStatus) string {
	switch {
	case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
		return s.State.Waiting.Reason
	case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
		return fmt.Sprintf("%s ended with exit code %d", s.Name, s.State.Terminated.ExitCode)
	}
	return ""
}
