package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// savedAnnotation of flannel's DaemonSet has what a switch changed in it, for the way back.
const savedAnnotation = "fairlead.io/before-switch"

// SwitchOptions say which nodes to switch, and how.
type SwitchOptions struct {
	Namespace string        // of the agents
	Nodes     []string      // "": all
	Timeout   time.Duration // for each node
	Progress  func(Progress)
}

// Switch moves nodes from flanneld to the agent, one after the other. It stops at the first node that does not become
// ready. Pods keep their network meanwhile.
func (c *Client) Switch(ctx context.Context, f *Flannel, o SwitchOptions) error {
	if err := c.excludeSwitched(ctx, f); err != nil {
		return err
	}
	for _, name := range f.Nodes {
		if len(o.Nodes) > 0 && !slices.Contains(o.Nodes, name) {
			continue
		}
		if err := c.switchNode(ctx, f, name, o); err != nil {
			return fmt.Errorf("switch node %s: %w\nThe other nodes are not affected. To go on, type the same command again. To go back, type: fairlead kubernetes uninstall --node %s", name, err, name)
		}
	}
	return nil
}

func (c *Client) switchNode(ctx context.Context, f *Flannel, name string, o SwitchOptions) error {
	if err := c.patchNode(ctx, labelPatch(switchValue), name); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	told := false
	err := c.waitForPod(limited, f, name, func(p *corev1.Pod) bool {
		if p != nil && !told {
			o.Progress(Progress{name, "flanneld ends"})
			told = true
		}
		return p == nil
	})
	if err != nil {
		return fmt.Errorf("wait until flanneld has ended: %w", err)
	}
	each := func(p Progress) {
		if p.Node == name {
			o.Progress(p)
		}
	}
	return c.waitUntil(ctx, o.Namespace, o.Timeout, each, func(s observation) bool {
		return slices.ContainsFunc(s.nodes, func(n nodeState) bool { return n.name == name && n.state(s) == ready })
	})
}

// labelPatch returns the patch of a Node that sets switchLabel; nil removes it.
func labelPatch(value any) any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{switchLabel: value}}}
}

// waitForPod waits until flannel's pod on a node, nil if there is none, is as wanted.
func (c *Client) waitForPod(ctx context.Context, f *Flannel, node string, wanted func(*corev1.Pod) bool) error {
	return until(ctx, func() (bool, error) {
		pods, err := list[corev1.Pod](ctx, c, pathOf("Pod", f.set.Namespace), "")
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return ownedBy(&p, f.set.Name) && nodeOf(&p) == node })
		if i < 0 {
			return wanted(nil), nil
		}
		return wanted(&pods[i]), nil
	})
}

// saved is the part of flannel's DaemonSet that a switch changes.
type saved struct {
	UpdateStrategy appsv1.DaemonSetUpdateStrategy `json:"updateStrategy"`
	Nodes          *corev1.NodeSelector           `json:"nodes"`
}

// excludeSwitched keeps flannel's pods away from switched nodes. With the strategy OnDelete, the change does not restart
// the others. Somebody may have applied flannel's manifest after an earlier command did it.
func (c *Client) excludeSwitched(ctx context.Context, f *Flannel) error {
	before := saved{UpdateStrategy: f.set.Spec.UpdateStrategy}
	if a := f.set.Spec.Template.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		before.Nodes = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if text := f.set.Annotations[savedAnnotation]; text != "" {
		var earlier saved
		if err := json.Unmarshal([]byte(text), &earlier); err != nil {
			return fmt.Errorf("the annotation %s of DaemonSet %s: %w", savedAnnotation, f.DaemonSet, err)
		}
		excluded, onDelete := excludesSwitched(before.Nodes), before.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
		if excluded && onDelete {
			return nil
		}
		if excluded {
			before.Nodes = earlier.Nodes
		}
		if onDelete {
			before.UpdateStrategy = earlier.UpdateStrategy
		}
	}
	raw, err := json.Marshal(before)
	if err != nil {
		return err
	}
	return c.patchFlannel(ctx, f, map[string]any{savedAnnotation: string(raw)}, saved{appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}, withoutSwitched(before.Nodes)})
}

// notSwitched is the node requirement that keeps flannel off switched nodes.
func notSwitched() corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: switchLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{switchValue}}
}

// excludesSwitched reports whether a node selector excludes switched nodes.
func excludesSwitched(s *corev1.NodeSelector) bool {
	return s != nil && !slices.ContainsFunc(s.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return reflect.DeepEqual(r, notSwitched()) })
	})
}

// patchFlannel changes flannel's DaemonSet.
func (c *Client) patchFlannel(ctx context.Context, f *Flannel, annotations map[string]any, to saved) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": annotations},
		"spec": map[string]any{
			"updateStrategy": map[string]any{"type": to.UpdateStrategy.Type, "rollingUpdate": to.UpdateStrategy.RollingUpdate},
			"template": map[string]any{"spec": map[string]any{"affinity": map[string]any{"nodeAffinity": map[string]any{
				"requiredDuringSchedulingIgnoredDuringExecution": to.Nodes,
			}}}},
		},
	})
	if err != nil {
		return err
	}
	err = c.rest.Patch(types.MergePatchType).AbsPath(pathOf("DaemonSet", f.set.Namespace), f.set.Name).Body(body).Do(ctx).Error()
	return c.Explain("change DaemonSet "+f.DaemonSet, err)
}

// withoutSwitched returns a node selector that excludes switched nodes. Each of its terms excludes them, because one that
// matches is enough.
func withoutSwitched(s *corev1.NodeSelector) *corev1.NodeSelector {
	out := s.DeepCopy()
	if out == nil {
		out = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range out.NodeSelectorTerms {
		out.NodeSelectorTerms[i].MatchExpressions = append(out.NodeSelectorTerms[i].MatchExpressions, notSwitched())
	}
	return out
}

// EndSwitch removes the labels of a switch from the nodes, once the agents' DaemonSet does not select them any more.
func (c *Client) EndSwitch(ctx context.Context) error {
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), switchLabel)
	for _, n := range nodes {
		err = errors.Join(err, c.patchNode(ctx, labelPatch(nil), n.Name))
	}
	return err
}
