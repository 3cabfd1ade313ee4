package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/contrib/kubernetes"
	"github.com/fairlead/fairlead/install/cluster/node"
)

// removerName is the name of the DaemonSet that removes Fairlead from the nodes.
const removerName = "fairlead-uninstall"

// UninstallOptions say what to remove.
type UninstallOptions struct {
	Manifest kubernetes.Options // for what an earlier, interrupted command has removed from the API
	Purge    bool               // also the definitions with their objects, and the namespace
	DryRun   bool
	Nodes    []string      // only move these back to flannel, and keep the objects
	Timeout  time.Duration // of the work on the nodes
	Progress func(string)
}

// Uninstalled is the result of an uninstallation.
type Uninstalled struct {
	Nodes   []node.Report `json:"nodes"`
	Removed []string      `json:"removed"` // objects: KIND NAME
	Kept    []string      `json:"kept"`    // objects, with the reason
	Back    []string      `json:"back"`    // nodes that went back to flannel
	DryRun  bool          `json:"dryRun"`
}

// Uninstall ends the agents, removes Fairlead from every node, and deletes its objects. Pods keep running.
func (c *Client) Uninstall(ctx context.Context, o UninstallOptions) (out *Uninstalled, err error) {
	out = &Uninstalled{Nodes: []node.Report{}, Removed: []string{}, Kept: []string{}, Back: []string{}, DryRun: o.DryRun}
	if _, err := c.Version(ctx); err != nil {
		return nil, err
	}
	if err := c.checkNamespace(ctx, o.Manifest.Namespace); err != nil {
		return nil, err
	}
	manifest, err := kubernetes.Render(o.Manifest)
	if err != nil {
		return nil, err
	}
	objects, err := Parse(manifest)
	if err != nil {
		return nil, err
	}
	set, file, err := c.agentsOf(ctx, objects)
	if err != nil {
		return nil, err
	}
	flannel, err := c.formerFlannel(ctx)
	if err != nil {
		return nil, err
	}
	if err := chooseBack(flannel, o.Nodes); err != nil {
		return nil, err
	}
	if flannel != nil && !flannel.handedOver {
		out.Back = append(out.Back, flannel.Nodes...)
	}
	if len(o.Nodes) > 0 {
		return out, c.uninstallSome(ctx, flannel, set, onNodes(remover(set, file, true), o.Nodes), o, out)
	}
	if o.DryRun {
		return out, c.previewUninstall(ctx, objects, o, out)
	}
	if flannel != nil && !flannel.handedOver {
		if err := c.goBack(ctx, flannel, o); err != nil {
			return out, err
		}
	}
	if err := c.uninstallNodes(ctx, set, remover(set, file, flannel != nil), objects[0], o, out); err != nil {
		return out, err
	}
	if flannel != nil && !slices.ContainsFunc(out.Nodes, func(r node.Report) bool { return len(r.Errors) > 0 }) {
		if err := c.endHandOver(ctx, flannel); err != nil {
			return out, err
		}
	}
	if err := c.forgetNodes(ctx); err != nil {
		return out, err
	}
	return out, c.removeObjects(ctx, objects, o, out)
}

// agentsOf returns the DaemonSet of the agents and the name of their list: as installed, or as in the manifest.
func (c *Client) agentsOf(ctx context.Context, objects []*Object) (set *appsv1.DaemonSet, file string, err error) {
	set = &appsv1.DaemonSet{}
	m := &corev1.ConfigMap{}
	for _, o := range objects {
		var into any
		switch o.GetKind() {
		case "DaemonSet":
			into = set
		case "ConfigMap":
			into = m
		default:
			continue
		}
		where, err := objectPath(o)
		if err != nil {
			return nil, "", err
		}
		err = c.get(ctx, into, where)
		if errors.Is(err, os.ErrNotExist) {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into)
		}
		if err != nil {
			return nil, "", err
		}
	}
	conf, err := installedConfig(m)
	if err == nil && conf.CNI.File == "" { // an administrator removed it: an earlier agent may have written the usual one
		m = &corev1.ConfigMap{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(of("ConfigMap", objects).Object, m); err != nil {
			return nil, "", err
		}
		conf, err = installedConfig(m)
	}
	if err != nil {
		return nil, "", err
	}
	return set, path.Base(conf.CNI.File), nil
}

// of returns the only object of a kind in the manifest.
func of(kind string, objects []*Object) *Object {
	return objects[slices.IndexFunc(objects, func(o *Object) bool { return o.GetKind() == kind })]
}

// installedConfig returns the agents' configuration in their ConfigMap.
func installedConfig(m *corev1.ConfigMap) (conf config.Config, err error) {
	if err := yaml.Unmarshal([]byte(m.Data["agent.yaml"]), &conf); err != nil {
		return conf, fmt.Errorf("the ConfigMap %s: agent.yaml: %w", m.Name, err)
	}
	return conf, nil
}

// uninstallNodes ends the agents and removes Fairlead from every node.
func (c *Client) uninstallNodes(ctx context.Context, set, remover *appsv1.DaemonSet, namespace *Object, o UninstallOptions, out *Uninstalled) error {
	err := c.get(ctx, &struct{}{}, pathOf("Namespace", "")+"/"+namespace.GetName())
	if errors.Is(err, os.ErrNotExist) { // an earlier uninstallation has deleted it
		err = c.apply(ctx, namespace, false, &Change{})
	}
	if err != nil {
		return err
	}
	if err := c.endAgents(ctx, set, o, out); err != nil {
		return err
	}
	return c.cleanNodes(ctx, set, remover, o, out)
}

// cleanNodes removes Fairlead from the nodes of a remover.
func (c *Client) cleanNodes(ctx context.Context, set, remover *appsv1.DaemonSet, o UninstallOptions, out *Uninstalled) (err error) {
	work, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	defer func() {
		fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		stuck, failed := c.removeDaemonSet(fresh, set.Namespace, removerName)
		if err = errors.Join(err, failed); len(stuck) > 0 {
			out.Kept = append(out.Kept, remaining(removerName, stuck))
		}
	}()
	if _, err := c.removeDaemonSet(work, set.Namespace, removerName); err != nil { // of an earlier command that was killed
		return err
	}
	if err := c.create(ctx, "DaemonSet", set.Namespace, remover); err != nil {
		return err
	}
	nodes, err := c.scheduled(work, set.Namespace)
	if err != nil {
		return err
	}
	have, missing, err := results[node.Report](work, c, set.Namespace, removerName, nodes, o.Progress)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	for _, name := range nodes {
		r, done := have[name]
		if !done {
			r = *node.NewReport(name)
			r.Errors = append(r.Errors, missing[name])
		}
		out.Nodes = append(out.Nodes, r)
	}
	return nil
}

// endAgents deletes the DaemonSet of the agents, if it exists. Agents on nodes that do not answer do not end; the node's
// part of the uninstallation waits for them.
func (c *Client) endAgents(ctx context.Context, set *appsv1.DaemonSet, o UninstallOptions, out *Uninstalled) error {
	if set.UID == "" { // as in the manifest: there is none
		return nil
	}
	if set.Labels[nameLabel] != agentName {
		return fmt.Errorf("the DaemonSet %s in the namespace %s lacks the label %s=%s, so Fairlead did not create it\nName the namespace of the agents with --namespace", set.Name, set.Namespace, nameLabel, agentName)
	}
	o.Progress("the agents end")
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	stuck, err := c.removeDaemonSet(limited, set.Namespace, set.Name)
	switch {
	case err != nil && !errors.Is(limited.Err(), context.DeadlineExceeded):
		return err
	case err != nil:
		out.Kept = append(out.Kept, err.Error())
	case len(stuck) > 0:
		out.Kept = append(out.Kept, remaining(set.Name, stuck))
	}
	out.Removed = append(out.Removed, "DaemonSet "+set.Name)
	return nil
}

// scheduled waits until the remover's DaemonSet has its pods, and returns their nodes.
func (c *Client) scheduled(ctx context.Context, namespace string) (nodes []string, err error) {
	err = until(ctx, func() (bool, error) {
		var set appsv1.DaemonSet
		if err := c.get(ctx, &set, pathOf("DaemonSet", namespace)+"/"+removerName); err != nil {
			return false, err
		}
		found, err := c.podsOf(ctx, namespace, removerName)
		nodes = sortedKeys(found)
		st := set.Status
		return st.ObservedGeneration >= set.Generation && len(nodes) >= int(st.DesiredNumberScheduled), err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the DaemonSet %s got no pods: is kube-controller-manager running?", removerName)
	}
	return nodes, err
}

// remover returns the DaemonSet that removes Fairlead from the nodes. It is privileged only if the agents are: then it
// unmounts the network namespaces of isolated networks for the host.
func remover(agents *appsv1.DaemonSet, file string, handOver bool) *appsv1.DaemonSet {
	args := []string{"kubernetes", "clean", "--stay", "--list=" + path.Join(confDir, file)}
	if handOver {
		args = append(args, "--hand-over")
	}
	set := shortLived(removerName, agents, args...)
	pod := &set.Spec.Template.Spec
	pod.NodeSelector = maps.Clone(pod.NodeSelector)
	delete(pod.NodeSelector, switchLabel) // nodes that went back to flannel do not have it
	yes, no, both, in := true, false, corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer
	may := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"DAC_OVERRIDE", "FOWNER", "NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"}},
	}
	if of := agents.Spec.Template.Spec.Containers[0].SecurityContext; of != nil && of.Privileged != nil && *of.Privileged {
		may = &corev1.SecurityContext{Privileged: &yes}
	} else {
		both = in
	}
	pod.HostNetwork, pod.HostPID, pod.PriorityClassName = true, true, agents.Spec.Template.Spec.PriorityClassName
	pod.Containers[0].SecurityContext = may
	pod.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	for _, v := range agents.Spec.Template.Spec.Volumes {
		if slices.Contains([]string{"bin", "conf", "lib"}, v.Name) {
			pod.Volumes = append(pod.Volumes, v)
		}
	}
	run := corev1.HostPathVolumeSource{Path: "/run"}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "run", VolumeSource: corev1.VolumeSource{HostPath: &run}})
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "bin", MountPath: BinDir}, {Name: "conf", MountPath: confDir}, {Name: "lib", MountPath: "/var/lib/cni"},
		{Name: "run", MountPath: "/run", MountPropagation: &both},
		{Name: "run", MountPath: "/var/run", MountPropagation: &in}, // runtimes name namespaces by either path
	}
	return set
}

// The directories of the plugins and of their lists in the pods.
const (
	BinDir  = "/opt/cni/bin"
	confDir = "/etc/cni/net.d"
)

// reasonPrefix begins the reasons of the condition that agents set.
const reasonPrefix = "Fairlead"

// forgetNodes removes what agents have published in the Nodes: an annotation and the condition NetworkUnavailable.
func (c *Client) forgetNodes(ctx context.Context) error {
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), "")
	if err != nil {
		return err
	}
	annotation := map[string]any{"metadata": map[string]any{"annotations": map[string]any{nodeAnnotation: nil}}}
	condition := map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": corev1.NodeNetworkUnavailable, "$patch": "delete"}}}}
	for _, n := range nodes {
		if n.Annotations[nodeAnnotation] != "" {
			err = c.patchNode(ctx, annotation, n.Name)
		}
		ours := func(x corev1.NodeCondition) bool {
			return x.Type == corev1.NodeNetworkUnavailable && strings.HasPrefix(x.Reason, reasonPrefix)
		}
		if slices.ContainsFunc(n.Status.Conditions, ours) {
			err = errors.Join(err, c.patchNode(ctx, condition, n.Name, "status"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// patchNode changes a Node. A Node that does not exist is no error.
func (c *Client) patchNode(ctx context.Context, patch any, path ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = c.rest.Patch(types.StrategicMergePatchType).AbsPath(append([]string{pathOf("Node", "")}, path...)...).Body(body).Do(ctx).Error()
	if err = c.Explain("change Node "+path[0], err); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// previewUninstall lists what Uninstall would remove.
func (c *Client) previewUninstall(ctx context.Context, objects []*Object, o UninstallOptions, out *Uninstalled) error {
	s, err := c.observe(ctx, o.Manifest.Namespace)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, name := range s.agents() {
		out.Nodes = append(out.Nodes, *node.NewReport(name))
	}
	return c.removeObjects(ctx, objects, o, out)
}
