package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	model "github.com/fairlead/fairlead/agent/cluster"
)

// Status is the state of Fairlead in a cluster.
type Status struct {
	Namespace string    `json:"namespace"`
	Image     string    `json:"image"`
	Ready     bool      `json:"ready"`
	Subnets   []string  `json:"subnets"` // of the default network
	Nodes     []Node    `json:"nodes"`
	Problems  []Problem `json:"problems"`
}

// Node is the state of one node.
type Node struct {
	Name               string   `json:"name"`
	Ready              bool     `json:"ready"`
	Pod                string   `json:"pod"` // of the agent
	State              string   `json:"state"`
	Version            string   `json:"version"` // that the agent published
	Restarts           int32    `json:"restarts"`
	NetworkUnavailable string   `json:"networkUnavailable"` // status of the condition: "True", "False", "Unknown"; "": it does not exist
	Addresses          []string `json:"addresses"`
	PodCIDRs           []string `json:"podCIDRs"` // that Kubernetes gave the Node
	Blocks             []string `json:"blocks"`   // that its agent claimed, with the network if it is not the default one
}

// Status reads the state of Fairlead.
func (c *Client) Status(ctx context.Context, namespace string) (*Status, error) {
	s, err := c.observe(ctx, namespace)
	if errors.Is(err, os.ErrNotExist) {
		return nil, c.notInstalled(ctx, namespace)
	}
	if err != nil {
		return nil, err
	}
	blocks, err := c.blocks(ctx)
	if err != nil {
		return nil, err
	}
	out := &Status{Namespace: namespace, Image: s.set.Spec.Template.Spec.Containers[0].Image, Nodes: []Node{}, Problems: c.problems(ctx, s), Subnets: []string{}}
	for _, n := range s.nodes {
		if n.pod != nil || runsOn(&n, s) {
			out.Nodes = append(out.Nodes, n.describe(s, blocks[n.name]))
		}
	}
	if err := c.describeNetworks(ctx, out); err != nil {
		return nil, err
	}
	out.Ready = len(out.Problems) == 0 && s.done()
	return out, nil
}

// notInstalled returns the error for a namespace without agents. It names a namespace with agents.
func (c *Client) notInstalled(ctx context.Context, namespace string) error {
	if err := c.checkNamespace(ctx, namespace); err != nil {
		return err
	}
	return fmt.Errorf("this cluster (%s) has no DaemonSet %s in the namespace %s\nTo install Fairlead, type: fairlead kubernetes install", c.server, agentName, namespace)
}

// checkNamespace returns an error if a namespace has no agents, but another one does.
func (c *Client) checkNamespace(ctx context.Context, namespace string) error {
	sets, err := list[appsv1.DaemonSet](ctx, c, pathOf("DaemonSet", ""), agentLabel)
	if err != nil {
		return err
	}
	sets = slices.DeleteFunc(sets, func(s appsv1.DaemonSet) bool { return !isAgents(&s) })
	if len(sets) == 0 || slices.ContainsFunc(sets, func(s appsv1.DaemonSet) bool { return s.Namespace == namespace }) {
		return nil
	}
	return fmt.Errorf("the namespace %s has no agents of Fairlead, but %s has\nType the same command with --namespace %s", namespace, sets[0].Namespace, sets[0].Namespace)
}

// isAgents reports whether a DaemonSet is that of the agents. The one that installs only plugins has the same name, but
// no configuration.
func isAgents(set *appsv1.DaemonSet) bool {
	return set.Name == agentName && slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == agentName
	})
}

// blocks returns the blocks of each node.
func (c *Client) blocks(ctx context.Context) (map[string][]string, error) {
	type block struct {
		Spec struct{ Network, CIDR, Node string }
	}
	all, err := list[block](ctx, c, "/apis/fairlead.io/v1alpha1/ipblocks", "")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	of := map[string][]string{}
	for _, b := range all {
		text := b.Spec.CIDR
		if b.Spec.Network != model.DefaultNetwork {
			text += " (" + b.Spec.Network + ")"
		}
		of[b.Spec.Node] = append(of[b.Spec.Node], text)
	}
	return of, nil
}

// describe returns the state of a node for the user.
func (n *nodeState) describe(s observation, blocks []string) Node {
	out := Node{Name: n.name, State: n.state(s), PodCIDRs: []string{}, Addresses: []string{}, Blocks: append([]string{}, blocks...)}
	slices.Sort(out.Blocks)
	if n.pod != nil {
		out.Pod = n.pod.Name
		for _, x := range n.pod.Status.ContainerStatuses {
			out.Restarts += x.RestartCount
		}
	}
	if n.node == nil {
		return out
	}
	out.Ready, _ = nodeReady(n.node)
	out.PodCIDRs = append(out.PodCIDRs, n.node.Spec.PodCIDRs...)
	for _, a := range n.node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	for _, x := range n.node.Status.Conditions {
		if x.Type == corev1.NodeNetworkUnavailable {
			out.NetworkUnavailable = string(x.Status)
		}
	}
	var published model.Node
	if json.Unmarshal([]byte(n.node.Annotations[nodeAnnotation]), &published) == nil {
		out.Version = published.Version
	}
	return out
}

// nodeAnnotation has what a node's agent published.
const nodeAnnotation = "fairlead.io/node"

// describeNetworks adds the default network, and the problems of all networks.
func (c *Client) describeNetworks(ctx context.Context, out *Status) error {
	type network struct {
		Metadata struct{ Name string }
		Spec     json.RawMessage
		Status   struct{ Conditions []condition }
	}
	all, err := list[network](ctx, c, networksPath, "")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	i := slices.IndexFunc(all, func(n network) bool { return n.Metadata.Name == model.DefaultNetwork })
	if i < 0 {
		out.Problems = append(out.Problems, Problem{What: []string{"the object Network/default does not exist: the first agent creates it; see the log: kubectl -n " + out.Namespace + " logs daemonset/fairlead -c agent"}})
	} else {
		spec, err := networkOf(all[i].Spec)
		if err != nil {
			return fmt.Errorf("the network %s: %w", model.DefaultNetwork, err)
		}
		for _, s := range spec.Subnets {
			out.Subnets = append(out.Subnets, strings.TrimSpace(s.CIDR.String()+" "+s.Assign))
		}
	}
	for _, n := range all {
		for _, x := range n.Status.Conditions {
			if x.Type == "Ready" && x.Status == "False" {
				out.Problems = append(out.Problems, Problem{What: []string{"network " + n.Metadata.Name + ": " + x.Message}})
			}
		}
	}
	return nil
}
