package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	model "github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/kube"
)

// Ranges are the pod ranges of a cluster.
type Ranges struct {
	CIDRs  []netip.Prefix
	Assign string // how nodes get their part: model.AssignPodCIDR or model.AssignBlock
	From   string // where the ranges were found
}

// FindRanges finds the cluster's pod ranges: those that the user named; or kubeadm's; or those of
// kube-controller-manager; or the usual ones, if the Nodes' podCIDRs are inside or absent.
func (c *Client) FindRanges(ctx context.Context, named, usual []netip.Prefix) (r Ranges, err error) {
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), "")
	if err != nil {
		return r, err
	}
	owns, err := nodeRanges(nodes)
	if err != nil {
		return r, err
	}
	for _, find := range []func(context.Context) (Ranges, error){
		func(context.Context) (Ranges, error) { return Ranges{CIDRs: named, From: "--pod-cidr"}, nil },
		c.kubeadmRanges, c.managerRanges,
	} {
		if r, err = find(ctx); err != nil || len(r.CIDRs) > 0 {
			break
		}
	}
	if err != nil {
		return r, err
	}
	if len(r.CIDRs) == 0 {
		return usualRanges(nodes, owns, usual)
	}
	if r.Assign == "" {
		r.Assign = assignment(owns)
	}
	if outside := outsideOf(owns, r.CIDRs); outside != "" {
		return r, fmt.Errorf("%s has the pod ranges %s, but %s is outside of them\nName all pod ranges of the cluster with --pod-cidr", r.From, join(r.CIDRs), outside)
	}
	if lacking := lackingOf(owns, r.CIDRs); r.Assign == model.AssignPodCIDR && lacking != "" {
		return r, fmt.Errorf("%s has the pod ranges %s, but %s\nA Node gets its podCIDRs when it registers: delete the Node, and restart its kubelet. Or name only the ranges of all Nodes with --pod-cidr", r.From, join(r.CIDRs), lacking)
	}
	return r, nil
}

// usualRanges returns the usual ranges, unless the Nodes have other podCIDRs, or only addresses of the other family.
// Without podCIDRs, Fairlead assigns blocks.
func usualRanges(nodes []corev1.Node, owns map[string][]netip.Prefix, usual []netip.Prefix) (Ranges, error) {
	r := Ranges{CIDRs: usual, Assign: assignment(owns), From: "the podCIDRs of the Nodes"}
	if r.Assign == model.AssignBlock {
		r.From = "the default, because the Nodes have no podCIDRs"
		if other := otherFamily(nodes, usual); other.IsValid() {
			return r, fmt.Errorf("the pod range of the cluster is unknown: the Nodes have addresses like %s, and the default is %s\n"+
				"Name the range with --pod-cidr, such as --pod-cidr fd00:10:244::/56", other, join(usual))
		}
		return r, nil
	}
	if outside := outsideOf(owns, usual); outside != "" {
		return r, fmt.Errorf("the pod range of the cluster is unknown: %s is not in %s\nName the range with --pod-cidr, such as --pod-cidr 10.0.0.0/16: the --cluster-cidr of kube-controller-manager", outside, join(usual))
	}
	return r, nil
}

// otherFamily returns an address of a Node if the Nodes have addresses, and none of the family of a range.
func otherFamily(nodes []corev1.Node, ranges []netip.Prefix) (other netip.Addr) {
	for i := range nodes {
		for _, a := range kube.NodeAddresses(&nodes[i]) {
			if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is6() == a.Is6() }) {
				return netip.Addr{}
			}
			other = a
		}
	}
	return other
}

// nodeRanges returns the podCIDRs of the Nodes that have some.
func nodeRanges(nodes []corev1.Node) (map[string][]netip.Prefix, error) {
	owns := map[string][]netip.Prefix{}
	for _, n := range nodes {
		for _, text := range n.Spec.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("node %s: spec.podCIDRs: %w", n.Name, err)
			}
			owns[n.Name] = append(owns[n.Name], p)
		}
	}
	return owns, nil
}

func assignment(owns map[string][]netip.Prefix) string {
	if len(owns) > 0 {
		return model.AssignPodCIDR
	}
	return model.AssignBlock
}

// outsideOf describes a Node's range that is in none of the ranges, or returns "".
func outsideOf(owns map[string][]netip.Prefix, ranges []netip.Prefix) string {
	for _, name := range sortedKeys(owns) {
		for _, p := range owns[name] {
			if !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) }) {
				return fmt.Sprintf("the podCIDR %s of node %s", p, name)
			}
		}
	}
	return ""
}

// lackingOf describes a Node that has podCIDRs, but none of a family of the ranges, or returns "". Its pods could not start.
func lackingOf(owns map[string][]netip.Prefix, ranges []netip.Prefix) string {
	for _, name := range sortedKeys(owns) {
		for _, r := range ranges {
			if !slices.ContainsFunc(owns[name], func(p netip.Prefix) bool { return p.Addr().Is6() == r.Addr().Is6() }) {
				return fmt.Sprintf("node %s has only the podCIDRs %s", name, join(owns[name]))
			}
		}
	}
	return ""
}

// kubeadmRanges reads what "kubeadm init --pod-network-cidr" stored. kubeadm has each Node get a part of it.
func (c *Client) kubeadmRanges(ctx context.Context) (r Ranges, err error) {
	var m corev1.ConfigMap
	err = c.get(ctx, &m, pathOf("ConfigMap", "kube-system")+"/kubeadm-config")
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	var conf struct {
		Networking struct{ PodSubnet string }
	}
	r.From, r.Assign = "the ConfigMap kube-system/kubeadm-config", model.AssignPodCIDR
	if err := yaml.Unmarshal([]byte(m.Data["ClusterConfiguration"]), &conf); err != nil {
		return r, fmt.Errorf("%s: ClusterConfiguration: %w\nName the pod range with --pod-cidr", r.From, err)
	}
	r.CIDRs, err = parseRanges(r.From, conf.Networking.PodSubnet)
	return r, err
}

// managerRanges reads the arguments of the pods of kube-controller-manager.
func (c *Client) managerRanges(ctx context.Context) (r Ranges, err error) {
	pods, err := list[corev1.Pod](ctx, c, pathOf("Pod", "kube-system"), "component=kube-controller-manager")
	if err != nil {
		return r, err
	}
	for _, p := range pods {
		for _, container := range p.Spec.Containers {
			words := append(slices.Clone(container.Command), container.Args...)
			text := argument(words, "cluster-cidr")
			if text == "" {
				continue
			}
			r.From = "the arguments of pod " + p.Name
			if argument(words, "allocate-node-cidrs") == "true" {
				r.Assign = model.AssignPodCIDR
			}
			r.CIDRs, err = parseRanges(r.From, text)
			return r, err
		}
	}
	return r, nil
}

// argument returns the value of a flag in a command line, or "".
func argument(words []string, flag string) string {
	for i, w := range words {
		name, value, has := strings.Cut(strings.TrimLeft(w, "-"), "=")
		switch {
		case name != flag || !strings.HasPrefix(w, "-"):
		case has:
			return value
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			return words[i+1]
		default:
			return "true"
		}
	}
	return ""
}

// parseRanges parses "10.244.0.0/16,fd00::/56".
func parseRanges(from, text string) (list []netip.Prefix, err error) {
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil {
			return nil, fmt.Errorf("%s: the pod range %s: %w\nName the pod range with --pod-cidr", from, word, err)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// CheckFree reports a pod range that overlaps with the addresses of Services or Nodes.
func (c *Client) CheckFree(ctx context.Context, ranges []netip.Prefix) error {
	type serviceCIDR struct{ Spec struct{ CIDRs []string } }
	services, err := list[serviceCIDR](ctx, c, "/apis/networking.k8s.io/v1/servicecidrs", "")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	nodes, err := list[corev1.Node](ctx, c, pathOf("Node", ""), "")
	if err != nil {
		return err
	}
	for _, r := range ranges {
		for _, s := range services {
			for _, text := range s.Spec.CIDRs {
				if p, err := netip.ParsePrefix(text); err == nil && p.Overlaps(r) {
					return fmt.Errorf("the pod range %s overlaps with the range of the Services, %s\nName another range with --pod-cidr", r, p)
				}
			}
		}
		for _, n := range nodes {
			for _, a := range n.Status.Addresses {
				if ip, err := netip.ParseAddr(a.Address); err == nil && r.Contains(ip) {
					return fmt.Errorf("the address %s of node %s is in the pod range %s\nName another range with --pod-cidr", ip, n.Name, r)
				}
			}
		}
	}
	return nil
}
