package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shortLived returns a DaemonSet for a task of a command, on the nodes with agents and with the image of the agents. Its
// pods get their node's name in nodeVariable.
func shortLived(name string, agents *appsv1.DaemonSet, args ...string) *appsv1.DaemonSet {
	from := agents.Spec.Template.Spec
	labels := map[string]string{nameLabel: name}
	no := false
	grace := int64(1)
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: agents.Namespace, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: from.NodeSelector, Tolerations: from.Tolerations, Affinity: from.Affinity.DeepCopy(), ImagePullSecrets: from.ImagePullSecrets,
					AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: &grace,
					Containers: []corev1.Container{{
						Name: name, Image: from.Containers[0].Image, ImagePullPolicy: from.Containers[0].ImagePullPolicy, Args: args,
						Env: []corev1.EnvVar{{Name: NodeVariable, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
					}},
				},
			},
		},
	}
}

// onNodes limits a DaemonSet to nodes.
func onNodes(set *appsv1.DaemonSet, nodes []string) *appsv1.DaemonSet {
	s := &corev1.NodeSelector{}
	for _, n := range nodes { // the API allows one name in each term
		is := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{n}}
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{is}})
	}
	set.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}}
	return set
}

const nameLabel = "app.kubernetes.io/name"

// NodeVariable is the environment variable with the name of the node in the pods of a command.
const NodeVariable = "FAIRLEAD_NODE"

// create creates an object.
func (c *Client) create(ctx context.Context, kind, namespace string, o any) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	err = c.rest.Post().AbsPath(pathOf(kind, namespace)).Param("fieldManager", manager).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		return c.Explain("create a "+kind+" in the namespace "+namespace, err)
	}
	return nil
}

// remove deletes an object and what it owns. An object that does not exist is no error.
func (c *Client) remove(ctx context.Context, path string) (existed bool, err error) {
	body := []byte(`{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}`)
	err = c.rest.Delete().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err == nil {
		return true, nil
	}
	if err = c.Explain("delete "+path, err); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return false, err
}

// removeDaemonSet deletes a DaemonSet and waits until its pods are gone. A pod that is being deleted stays while its node's
// kubelet does not answer: removeDaemonSet does not wait for those, and returns the nodes.
func (c *Client) removeDaemonSet(ctx context.Context, namespace, name string) (stuck []string, err error) {
	if _, err := c.remove(ctx, pathOf("DaemonSet", namespace)+"/"+name); err != nil {
		return nil, err
	}
	left := 0
	err = until(ctx, func() (bool, error) {
		all, err := list[corev1.Pod](ctx, c, pathOf("Pod", namespace), nameLabel+"="+name)
		all = slices.DeleteFunc(all, func(p corev1.Pod) bool { return !ownedBy(&p, name) })
		if left = len(all); left == 0 || err != nil {
			return left == 0, err
		}
		stuck, err = c.stuck(ctx, all)
		return err == nil && len(stuck) == left, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%d pods of the DaemonSet %s are still there; they end when their nodes' kubelets answer", left, name)
	}
	return stuck, err
}

// stuck returns the nodes of pods that are being deleted on nodes whose kubelet does not answer, or that do not exist any
// more; sorted.
func (c *Client) stuck(ctx context.Context, pods []corev1.Pod) (on []string, err error) {
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), "")
	if err != nil {
		return nil, err
	}
	answers := map[string]bool{}
	for i := range nodes {
		answers[nodes[i].Name] = !slices.ContainsFunc(nodes[i].Status.Conditions, func(x corev1.NodeCondition) bool {
			return x.Type == corev1.NodeReady && x.Status == corev1.ConditionUnknown // by kube-controller-manager
		})
	}
	for i := range pods {
		if name := nodeOf(&pods[i]); pods[i].DeletionTimestamp != nil && !answers[name] {
			on = append(on, name)
		}
	}
	slices.Sort(on)
	return on, nil
}

// remaining says which pods of a DaemonSet remain.
func remaining(name string, on []string) string {
	return fmt.Sprintf("the pods of the DaemonSet %s on %s end when the kubelets there answer", name, strings.Join(slices.Compact(on), ", "))
}

// cleanupTimeout limits the removal of a command's own objects, also after Ctrl-C.
const cleanupTimeout = time.Minute

// podsOf returns the pods of a DaemonSet by the name of their node.
func (c *Client) podsOf(ctx context.Context, namespace, name string) (map[string]*corev1.Pod, error) {
	all, err := list[corev1.Pod](ctx, c, pathOf("Pod", namespace), nameLabel+"="+name)
	out := map[string]*corev1.Pod{}
	for i := range all {
		if p := &all[i]; ownedBy(p, name) && p.DeletionTimestamp == nil {
			out[nodeOf(p)] = p
		}
	}
	return out, err
}

// results reads one line of JSON from the log of a DaemonSet's pod on each node, until all nodes have one or the
// context ends. It returns the reasons of the nodes without one.
func results[T any](ctx context.Context, c *Client, namespace, name string, nodes []string, progress func(string)) (map[string]T, map[string]string, error) {
	have, missing := map[string]T{}, map[string]string{}
	err := until(ctx, func() (bool, error) {
		found, err := c.podsOf(ctx, namespace, name)
		if err != nil {
			return false, err
		}
		for _, n := range nodes {
			if _, done := have[n]; done {
				continue
			}
			r, why := result[T](ctx, c, found[n])
			if why == "" {
				have[n] = r
				delete(missing, n)
				progress(fmt.Sprintf("%s: %d of %d nodes are done", name, len(have), len(nodes)))
			} else if ctx.Err() == nil {
				missing[n] = why
			}
		}
		return len(have) == len(nodes), nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	for _, n := range nodes {
		if _, done := have[n]; !done && missing[n] == "" {
			missing[n] = "the time was over before its result was read"
		}
	}
	return have, missing, err
}

// result reads the line of JSON of a pod, or says why there is none.
func result[T any](ctx context.Context, c *Client, p *corev1.Pod) (r T, why string) {
	if p == nil {
		return r, "the node has no pod"
	}
	if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodSucceeded {
		return r, "the pod did not start: " + podState(p) + suffix(podReasons(p))
	}
	text, err := c.log(ctx, p, p.Spec.Containers[0].Name, logLines, false)
	if err != nil {
		return r, err.Error()
	}
	line := lastLine(text)
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		if line != "" {
			return r, "the pod printed: " + line
		}
		return r, "the pod is not done"
	}
	return r, ""
}
