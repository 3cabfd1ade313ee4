package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/fairlead/fairlead/agent/store/kube"
)

// Problem is a problem on one node, or of the whole cluster if the node is empty.
type Problem struct {
	Node string   `json:"node,omitempty"`
	What []string `json:"what"`
	Log  []string `json:"log,omitempty"` // the last lines of the agent
}

func (p Problem) String() string {
	var b strings.Builder
	name := "node " + p.Node
	if p.Node == "" {
		name = "cluster"
	}
	for _, w := range p.What {
		fmt.Fprintf(&b, "%s: %s\n", name, w)
	}
	if len(p.Log) > 0 {
		fmt.Fprintf(&b, "%s: the end of the agent's log:\n", name)
	}
	for _, l := range p.Log {
		b.WriteString("    " + l + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// logLines is the number of lines of an agent's log that a problem has.
const logLines = 5

// maxLogs is the number of nodes whose logs are read: in a large cluster, the reasons repeat.
const maxLogs = 10

// problems describes the nodes that are not ready.
func (c *Client) problems(ctx context.Context, s observation) (out []Problem) {
	if s.set.Status.DesiredNumberScheduled == 0 {
		out = append(out, Problem{What: []string{"no node runs an agent: check that the DaemonSet's nodeSelector matches labels of Nodes, and that kube-controller-manager runs"}})
	}
	for _, n := range s.nodes {
		if n.state(s) == ready || n.pod == nil && !runsOn(&n, s) {
			continue
		}
		p := Problem{Node: n.name, What: n.why(s)}
		if n.pod != nil && n.pod.Spec.NodeName != "" && !podReady(n.pod) && len(out) < maxLogs {
			p.Log = c.lastLog(ctx, n.pod)
		}
		out = append(out, p)
	}
	return out
}

// runsOn reports whether a node without an agent should have one: the DaemonSet's nodeSelector and tolerations
// decide. An affinity that an administrator added may exclude the node, so then the answer is no: the DaemonSet's
// status tells.
func runsOn(n *nodeState, s observation) bool {
	pod := s.set.Spec.Template.Spec
	for k, v := range pod.NodeSelector {
		if n.node == nil || n.node.Labels[k] != v {
			return false
		}
	}
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return false
	}
	return n.node == nil || !slices.ContainsFunc(n.node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(stateTaints(), t.Key) &&
			!slices.ContainsFunc(pod.Tolerations, func(x corev1.Toleration) bool { return x.ToleratesTaint(klog.Background(), &t, true) })
	})
}

// stateTaints are the keys of taints about a node's state. kube-controller-manager adds tolerations for them to the pods of
// DaemonSets: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/.
func stateTaints() []string {
	return []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable}
}

// why lists what is wrong with a node and its agent.
func (n *nodeState) why(s observation) (what []string) {
	if n.pod == nil {
		what = append(what, "no agent")
	} else if text := n.state(s); !podReady(n.pod) || text == "waits for its new agent" {
		what = append(what, text)
	}
	if n.pod != nil {
		what = append(what, podReasons(n.pod)...)
	}
	if n.node == nil {
		return what
	}
	if is, why := nodeReady(n.node); !is {
		what = append(what, "not Ready: "+why)
	}
	for _, x := range n.node.Status.Conditions {
		pressure := x.Type == corev1.NodeDiskPressure || x.Type == corev1.NodeMemoryPressure || x.Type == corev1.NodePIDPressure
		if (pressure || x.Type == corev1.NodeNetworkUnavailable) && x.Status == corev1.ConditionTrue {
			what = append(what, fmt.Sprintf("%s: %s", x.Type, x.Message))
		}
	}
	return what
}

// podReasons returns the messages of a pod's containers and of the scheduler.
func podReasons(p *corev1.Pod) (what []string) {
	for _, x := range p.Status.Conditions {
		if x.Type == corev1.PodScheduled && x.Status == corev1.ConditionFalse {
			what = append(what, "not scheduled: "+x.Message)
		}
	}
	if p.Status.Message != "" {
		what = append(what, p.Status.Reason+": "+p.Status.Message)
	}
	for _, group := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range group {
			if w := s.State.Waiting; w != nil && w.Message != "" {
				what = append(what, fmt.Sprintf("container %s: %s", s.Name, w.Message))
			}
			if t := s.LastTerminationState.Terminated; t != nil && s.RestartCount > 0 && !s.Ready {
				what = append(what, fmt.Sprintf("container %s has restarted %d times; its last run ended with exit code %d (%s)", s.Name, s.RestartCount, t.ExitCode, t.Reason))
			}
		}
	}
	return what
}

// lastLog returns the end of the log of the container that keeps a pod from being ready.
func (c *Client) lastLog(ctx context.Context, p *corev1.Pod) []string {
	container, previous := "", false
	for _, group := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range group {
			begun := s.State.Running != nil || s.State.Terminated != nil || s.RestartCount > 0
			if container == "" && !s.Ready && begun {
				container, previous = s.Name, s.State.Waiting != nil
			}
		}
	}
	if container == "" {
		return nil
	}
	text, err := c.log(ctx, p, container, logLines, previous)
	if err != nil {
		return []string{"the log cannot be read: " + err.Error()}
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// log returns the last lines of a container's log.
func (c *Client) log(ctx context.Context, p *corev1.Pod, container string, lines int, previous bool) (string, error) {
	raw, err := kube.Body(c.rest.Get().AbsPath(pathOf("Pod", p.Namespace), p.Name, "log").Param("container", container).
		Param("tailLines", strconv.Itoa(lines)).Param("previous", strconv.FormatBool(previous)).Do(ctx))
	if err != nil {
		return "", c.Explain("read the log of pod "+p.Name, err)
	}
	return string(raw), nil
}
