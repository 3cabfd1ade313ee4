package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	model "github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/contrib/kubernetes"
)

// A switch from flannel moves one node after the other. A node with switchLabel runs Fairlead's agent, any other flanneld:
// the agents' DaemonSet selects the label, and the affinity of flannel's DaemonSet excludes it.
const (
	switchLabel = "fairlead.io/pod-network"
	switchValue = "fairlead"
)

// savedAnnotation of flannel's DaemonSet has what a switch changed in it, for the way back.
const savedAnnotation = "fairlead.io/before-switch"

// Flannel is an installed flannel whose store is the Kubernetes API.
type Flannel struct {
	DaemonSet string // NAMESPACE/NAME
	Backend   string
	Nodes     []string // to switch

	set    appsv1.DaemonSet
	names  *model.FlannelAnnotations
	values kubernetes.Values
}

// findFlannel reads flannel's DaemonSet and its configuration, and verifies that its nodes can switch.
func (c *Client) findFlannel(ctx context.Context, others []Other) (*Flannel, error) {
	if len(others) != 1 || others[0].Product != "flannel" {
		return nil, fmt.Errorf("the cluster has no flannel that could be switched: its pod networks are: %s", join(others))
	}
	f, err := c.flannelSet(ctx, others[0])
	if err != nil {
		return nil, err
	}
	arguments := f.arguments()
	if argument(arguments, "kube-subnet-mgr") != "true" {
		return nil, fmt.Errorf("flannel (DaemonSet %s) has no argument --kube-subnet-mgr, so it keeps its subnets in etcd\nSee docs/flannel.md for the switch from it", f.DaemonSet)
	}
	prefix := argument(arguments, "kube-annotation-prefix")
	if prefix == "" {
		prefix = model.DefaultFlannelAnnotations
	}
	f.names = model.NewFlannelAnnotations(prefix)
	network, list, err := c.flannelConfig(ctx, f, argument(arguments, "ip-masq") == "true")
	if err != nil {
		return nil, err
	}
	f.Backend = network.Backends[len(network.Backends)-1].Type
	if f.values, err = chartValues(network, list, prefix); err != nil {
		return nil, err
	}
	return f, c.checkFlannelNodes(ctx, f)
}

// flannelSet reads flannel's DaemonSet.
func (c *Client) flannelSet(ctx context.Context, o Other) (*Flannel, error) {
	f := &Flannel{DaemonSet: o.DaemonSet}
	namespace, name, _ := strings.Cut(o.DaemonSet, "/")
	return f, c.get(ctx, &f.set, pathOf("DaemonSet", namespace)+"/"+name)
}

// arguments returns the commands and arguments of flannel's containers.
func (f *Flannel) arguments() (all []string) {
	for _, c := range f.set.Spec.Template.Spec.Containers {
		all = slices.Concat(all, c.Command, c.Args)
	}
	return all
}

// flannelConfig reads the network and the list of pods in flannel's ConfigMap.
func (c *Client) flannelConfig(ctx context.Context, f *Flannel, nat bool) (*model.Network, map[string]any, error) {
	for _, v := range f.set.Spec.Template.Spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		var m corev1.ConfigMap
		if err := c.get(ctx, &m, pathOf("ConfigMap", f.set.Namespace)+"/"+v.ConfigMap.Name); err != nil {
			return nil, nil, err
		}
		text, has := m.Data["net-conf.json"]
		if !has {
			continue
		}
		where := "the ConfigMap " + m.Namespace + "/" + m.Name
		n, err := config.ParseNetConf([]byte(text))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: net-conf.json: %w", where, err)
		}
		n.NAT = nat
		for i := range n.Subnets {
			n.Subnets[i] = model.Subnet{CIDR: n.Subnets[i].CIDR, Assign: model.AssignPodCIDR}
		}
		var list map[string]any
		if err := json.Unmarshal([]byte(m.Data["cni-conf.json"]), &list); err != nil {
			return nil, nil, fmt.Errorf("%s: cni-conf.json: %w", where, err)
		}
		return n, list, nil
	}
	return nil, nil, fmt.Errorf("flannel (DaemonSet %s) has no ConfigMap with net-conf.json", f.DaemonSet)
}

// chartValues returns the values with which Fairlead continues flannel's network: its ranges and backend, and its list, so
// that the addresses of running pods stay known.
func chartValues(n *model.Network, list map[string]any, prefix string) (kubernetes.Values, error) {
	raw, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	var network map[string]any
	if err := json.Unmarshal(raw, &network); err != nil {
		return nil, err
	}
	network["nat"] = n.NAT // the chart's default is true
	return kubernetes.Values{
		"network":      network,
		"cni":          map[string]any{"list": list},
		"flannel":      map[string]any{"enabled": true, "prefix": prefix},
		"nodeSelector": map[string]any{switchLabel: switchValue},
	}, nil
}

// checkFlannelNodes finds the nodes to switch. A node's address must be the same for both, or packets would be lost.
func (c *Client) checkFlannelNodes(ctx context.Context, f *Flannel) error {
	if f.Backend != model.VXLAN && f.Backend != model.HostGW {
		return fmt.Errorf("flannel uses the backend %s: only vxlan and host-gw can switch node by node", f.Backend)
	}
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), "")
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range nodes {
		of := f.names.Parse(n.Annotations)
		switch {
		case n.Labels[switchLabel] == switchValue:
		case of == nil:
			continue
		case of.Flannel.Problem != "":
			errs = append(errs, fmt.Errorf("node %s: %s", n.Name, of.Flannel.Problem))
		case of.Flannel.Type != f.Backend:
			errs = append(errs, fmt.Errorf("node %s uses flannel's backend %s, but the ConfigMap has %s", n.Name, of.Flannel.Type, f.Backend))
		default:
			errs = append(errs, sameAddresses(&n, of.Addresses))
		}
		f.Nodes = append(f.Nodes, n.Name)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(f.Nodes) == 0 {
		return fmt.Errorf("flannel (DaemonSet %s) manages no node yet", f.DaemonSet)
	}
	slices.Sort(f.Nodes)
	return nil
}

// sameAddresses reports an address of flannel that is not the Node's, which Fairlead uses.
func sameAddresses(n *corev1.Node, of []netip.Prefix) error {
	for _, p := range of {
		is := func(a corev1.NodeAddress) bool {
			ip, err := netip.ParseAddr(a.Address)
			return err == nil && a.Type == corev1.NodeInternalIP && ip == p.Addr()
		}
		if !slices.ContainsFunc(n.Status.Addresses, is) {
			return fmt.Errorf("node %s: flannel uses the address %s, which is no InternalIP of the Node\nFairlead uses the InternalIP: set --node-ip of the kubelet, or flannel's --iface and public-ip-overwrite, to the same address first", n.Name, p.Addr())
		}
	}
	return nil
}

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
// the others.
func (c *Client) excludeSwitched(ctx context.Context, f *Flannel) error {
	if f.set.Annotations[savedAnnotation] != "" {
		return nil // an earlier command did it
	}
	spec := f.set.Spec
	var nodes *corev1.NodeSelector
	if a := spec.Template.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		nodes = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	raw, err := json.Marshal(saved{spec.UpdateStrategy, nodes})
	if err != nil {
		return err
	}
	return c.patchFlannel(ctx, f, string(raw), saved{appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}, withoutSwitched(nodes)})
}

// patchFlannel changes flannel's DaemonSet.
func (c *Client) patchFlannel(ctx context.Context, f *Flannel, annotation any, to saved) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{savedAnnotation: annotation}},
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
	return c.explain("change DaemonSet "+f.DaemonSet, err)
}

// withoutSwitched returns a node selector that excludes switched nodes. Each of its terms excludes them, because one that
// matches is enough.
func withoutSwitched(s *corev1.NodeSelector) *corev1.NodeSelector {
	out := s.DeepCopy()
	if out == nil {
		out = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	not := corev1.NodeSelectorRequirement{Key: switchLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{switchValue}}
	for i := range out.NodeSelectorTerms {
		out.NodeSelectorTerms[i].MatchExpressions = append(out.NodeSelectorTerms[i].MatchExpressions, not)
	}
	return out
}

// keepFlannel returns values of an installation that was switched from flannel, which an upgrade must keep: without them,
// tunnels and pods would get others. It returns nil if there is no such installation.
func (c *Client) keepFlannel(ctx context.Context, namespace string) (kubernetes.Values, error) {
	var m corev1.ConfigMap
	err := c.get(ctx, &m, pathOf("ConfigMap", namespace)+"/"+agentName)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	conf, err := installedConfig(&m)
	if err != nil || conf.Flannel.Prefix == "" {
		return nil, err
	}
	var list map[string]any
	if err := json.Unmarshal(conf.CNI.List, &list); err != nil {
		return nil, fmt.Errorf("the ConfigMap %s: cni.list: %w", m.Name, err)
	}
	return kubernetes.Values{"cni": map[string]any{"list": list}, "flannel": map[string]any{"enabled": true, "prefix": conf.Flannel.Prefix}}, nil
}

// EndSwitch removes the labels of a switch from the nodes, once the agents' DaemonSet does not select them any more.
func (c *Client) EndSwitch(ctx context.Context) error {
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), switchLabel)
	for _, n := range nodes {
		err = errors.Join(err, c.patchNode(ctx, labelPatch(nil), n.Name))
	}
	return err
}

// formerFlannel returns the flannel to which a switched cluster can go back, with the nodes that have left it; nil if there
// is none. handOver reports whether flanneld uses what agents have left on the nodes: that is so, too, after an earlier
// command has gone back and ended the agents.
func (c *Client) formerFlannel(ctx context.Context, agents bool) (f *Flannel, handOver bool, err error) {
	others, err := c.Others(ctx)
	if err != nil {
		return nil, false, err
	}
	i := slices.IndexFunc(others, func(o Other) bool { return o.Product == "flannel" })
	if i < 0 {
		return nil, false, nil
	}
	if f, err = c.flannelSet(ctx, others[i]); err != nil {
		return nil, false, err
	}
	if f.set.Annotations[savedAnnotation] == "" {
		return nil, !agents, nil
	}
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), switchLabel)
	for _, n := range nodes {
		f.Nodes = append(f.Nodes, n.Name)
	}
	slices.Sort(f.Nodes)
	return f, true, err
}

// chooseBack limits the nodes that go back to those that the user named.
func chooseBack(f *Flannel, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	if f == nil {
		return errors.New("--node: the cluster has no flannel to which a node could go back")
	}
	for _, n := range nodes {
		if !slices.Contains(f.Nodes, n) {
			return fmt.Errorf("--node %s: this node was not switched from flannel: %s", n, join(f.Nodes))
		}
	}
	f.Nodes = nodes
	return nil
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
	return c.patchFlannel(ctx, f, nil, old)
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
