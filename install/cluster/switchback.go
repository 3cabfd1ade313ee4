package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// handedOverAnnotation of flannel's DaemonSet says that an uninstallation has gone back to flannel and is not complete:
// flanneld uses what agents have left on the nodes. A flannel that was installed later does not.
const handedOverAnnotation = "fairlead.io/handed-over"

// formerFlannel returns the flannel to which a switched cluster can go back, or has gone back, with the nodes that have
// left it; nil if there is none.
func (c *Client) formerFlannel(ctx context.Context) (f *Flannel, err error) {
	others, err := c.Others(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(others, func(o Other) bool { return o.Product == "flannel" })
	if i < 0 {
		return nil, nil
	}
	if f, err = c.flannelSet(ctx, others[i]); err != nil {
		return nil, err
	}
	if f.set.Annotations[savedAnnotation] == "" {
		if f.handedOver = f.set.Annotations[handedOverAnnotation] != ""; f.handedOver {
			return f, nil
		}
		return nil, nil
	}
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), "")
	for _, n := range nodes {
		if _, is := n.Labels[switchLabel]; is {
			f.Nodes = append(f.Nodes, n.Name)
		} else if n.Annotations[nodeAnnotation] != "" {
			f.begun = append(f.begun, n.Name)
		}
	}
	slices.Sort(f.Nodes)
	return f, err
}

// chooseBack limits the nodes that go back to those that the user named.
func chooseBack(f *Flannel, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	if f == nil || f.handedOver {
		return errors.New("--node: the cluster has no flannel to which a node could go back")
	}
	for _, n := range nodes {
		if !slices.Contains(f.Nodes, n) && !slices.Contains(f.begun, n) {
			return fmt.Errorf("--node %s: this node was not switched from flannel: %s", n, join(f.Nodes))
		}
	}
	f.Nodes = nodes
	return nil
}

// uninstallSome moves nodes back, and removes Fairlead from them.
func (c *Client) uninstallSome(ctx context.Context, f *Flannel, agents, remover *appsv1.DaemonSet, o UninstallOptions, out *Uninstalled) error {
	if o.DryRun {
		return nil
	}
	if err := c.nodesBack(ctx, f, o); err != nil {
		return err
	}
	return c.cleanNodes(ctx, agents, remover, o, out)
}

// nodesBack moves nodes from the agent to flanneld, one after the other.
func (c *Client) nodesBack(ctx context.Context, f *Flannel, o UninstallOptions) error {
	for _, name := range f.Nodes {
		if err := c.nodeBack(ctx, f, name, o); err != nil {
			return fmt.Errorf("switch node %s back to flannel: %w\nThe other nodes are not affected. To go on, type the same command again", name, err)
		}
	}
	return nil
}

// goBack moves all nodes back, and restores flannel's DaemonSet.
func (c *Client) goBack(ctx context.Context, f *Flannel, o UninstallOptions) error {
	if err := c.nodesBack(ctx, f, o); err != nil {
		return err
	}
	var old saved
	if err := json.Unmarshal([]byte(f.set.Annotations[savedAnnotation]), &old); err != nil {
		return fmt.Errorf("the annotation %s of DaemonSet %s: %w", savedAnnotation, f.DaemonSet, err)
	}
	return c.patchFlannel(ctx, f, map[string]any{savedAnnotation: nil, handedOverAnnotation: "true"}, old)
}

// endHandOver removes the annotation of goBack, once Fairlead is gone from the nodes.
func (c *Client) endHandOver(ctx context.Context, f *Flannel) error {
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`, handedOverAnnotation)
	err := c.rest.Patch(types.MergePatchType).AbsPath(pathOf("DaemonSet", f.set.Namespace), f.set.Name).Body([]byte(patch)).Do(ctx).Error()
	return c.Explain("change DaemonSet "+f.DaemonSet, err)
}

// nodeBack moves one node. The agent's annotation stays until flanneld has written its own: the other nodes need one.
func (c *Client) nodeBack(ctx context.Context, f *Flannel, name string, o UninstallOptions) error {
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := c.patchNode(limited, labelPatch(nil), name); err != nil {
		return err
	}
	o.Progress("node " + name + ": the agent ends, flanneld starts")
	if err := c.waitForPod(limited, f, name, func(p *corev1.Pod) bool { return p != nil && p.DeletionTimestamp == nil && podReady(p) }); err != nil {
		return fmt.Errorf("wait for flanneld: %w", err)
	}
	err := until(limited, func() (bool, error) {
		s, err := c.observe(limited, o.Manifest.Namespace)
		if errors.Is(err, os.ErrNotExist) {
			return true, nil
		}
		return !slices.ContainsFunc(s.nodes, func(n nodeState) bool { return n.name == name && n.pod != nil }), err
	})
	if err != nil {
		return fmt.Errorf("wait until the agent has ended: %w", err)
	}
	annotation := map[string]any{"metadata": map[string]any{"annotations": map[string]any{nodeAnnotation: nil}}}
	if err := c.patchNode(limited, annotation, name); err != nil {
		return err
	}
	o.Progress("node " + name + ": flanneld is ready")
	return nil
}
