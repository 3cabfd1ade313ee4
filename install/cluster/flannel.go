package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

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

// Flannel is an installed flannel whose store is the Kubernetes API.
type Flannel struct {
	DaemonSet string // NAMESPACE/NAME
	Backend   string
	Nodes     []string // to switch

	begun      []string // nodes that an interrupted command has begun to move back
	handedOver bool     // an earlier uninstallation has moved all nodes back
	set        appsv1.DaemonSet
	names      *model.FlannelAnnotations
	network    *model.Network // that Fairlead continues
	values     kubernetes.Values
}

// findFlannel reads flannel's DaemonSet and its configuration, and verifies that its nodes can switch.
func (c *Client) findFlannel(ctx context.Context, others []Other) (*Flannel, error) {
	if len(others) == 0 {
		return nil, errors.New("the cluster has no flannel to switch from: no other pod network is installed\nTo install Fairlead, type: fairlead kubernetes install")
	}
	if len(others) != 1 || others[0].Product != "flannel" {
		return nil, fmt.Errorf("only a cluster whose single pod network is flannel can switch: this cluster has %s", join(others))
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
	f.network = network
	f.Backend = f.backend().Type
	if f.values, err = chartValues(network, list, prefix); err != nil {
		return nil, err
	}
	return f, c.checkFlannelNodes(ctx, f)
}

// backend returns the backend of flannel's nodes.
func (f *Flannel) backend() model.Backend { return f.network.Backends[len(f.network.Backends)-1] }

// checkNetwork verifies that an existing default network has flannel's ranges and backend. With others, nodes with and
// without flanneld would not reach each other.
func (f *Flannel) checkNetwork(spec map[string]any) error {
	have, err := networkOf(spec)
	if err != nil {
		return fmt.Errorf("the network %s: %w", model.DefaultNetwork, err)
	}
	if len(have.Backends) == 0 {
		have.Backends = []model.Backend{{Type: model.VXLAN}}
	}
	var differs []string
	for _, s := range f.network.Subnets {
		same := func(x model.Subnet) bool { return x.CIDR == s.CIDR && x.Assign == s.Assign }
		if !slices.ContainsFunc(have.Subnets, same) {
			differs = append(differs, fmt.Sprintf("it has no subnet %s with assign %s", s.CIDR, s.Assign))
		}
	}
	b := f.backend()
	same := func(x model.Backend) bool {
		return x.Type == b.Type && cmp.Or(x.VNI, model.DefaultVNI) == cmp.Or(b.VNI, model.DefaultVNI) && cmp.Or(x.Port, model.DefaultPort) == cmp.Or(b.Port, model.DefaultPort)
	}
	if !slices.ContainsFunc(have.Backends, same) {
		differs = append(differs, "it lacks flannel's backend "+b.Type+", or has another VNI or port")
	}
	if len(differs) == 0 {
		return nil
	}
	return fmt.Errorf("the network %s exists and differs from flannel's: %s\nTo change it, type: kubectl edit networks.fairlead.io %s\nIf no agent runs, you can delete it: kubectl delete networks.fairlead.io %s",
		model.DefaultNetwork, strings.Join(differs, "; "), model.DefaultNetwork, model.DefaultNetwork)
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
// that the addresses of running pods stay known. The list stays as it is: flannel's plugins delete pods with the same one.
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
		"cni":          map[string]any{"list": list, "fuse": false},
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
			return fmt.Errorf("node %s: flannel uses the address %s, which is not an InternalIP of the Node\nFairlead uses the InternalIP: set --node-ip of the kubelet, or flannel's --iface and public-ip-overwrite, to the same address first", n.Name, p.Addr())
		}
	}
	return nil
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
	return kubernetes.Values{"cni": map[string]any{"list": list, "fuse": conf.CNI.Fuse}, "flannel": map[string]any{"enabled": true, "prefix": conf.Flannel.Prefix}}, nil
}
