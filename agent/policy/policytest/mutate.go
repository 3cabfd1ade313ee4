package policytest

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/policy"
)

// Mutate returns a copy of a world with one change: it adds, removes or changes an endpoint, namespace, policy or node.
// An endpoint may take over the addresses of another one. The copy shares unchanged objects with the original, and the
// original does not change.
func Mutate(r *rand.Rand, w *policy.World) *policy.World {
	for {
		g := generator{r, &policy.World{
			Namespaces: maps.Clone(w.Namespaces), Endpoints: slices.Clone(w.Endpoints), Nodes: slices.Clone(w.Nodes),
			Policies: slices.Clone(w.Policies), ClusterPolicies: slices.Clone(w.ClusterPolicies),
			PodNetworks: w.PodNetworks,
		}}
		pick(g, g.changeEndpoint, g.changeEndpoint, g.changeNamespace, g.changePolicy, g.changePolicy, g.changeClusterPolicy,
			g.changeClusterPolicy, g.changeNode, g.changePodNetworks)()
		if !reflect.DeepEqual(g.w, w) {
			return g.w
		}
	}
}

// change adds, removes or replaces an element of a list.
func change[T any](g generator, list *[]T, add func() T, replace func(T) T) {
	if len(*list) == 0 || g.percent(25) {
		*list = append(*list, add())
		return
	}
	if i := g.IntN(len(*list)); g.percent(33) {
		*list = slices.Delete(*list, i, i+1)
	} else {
		(*list)[i] = replace((*list)[i])
	}
}

func (g generator) changeEndpoint() {
	change(g, &g.w.Endpoints, g.endpoint, func(e *policy.Endpoint) *policy.Endpoint {
		changed := *e
		switch g.IntN(5) {
		case 0: // another endpoint gets the addresses
			changed = *g.endpoint()
			changed.Addresses, changed.Node = e.Addresses, e.Node
		case 1:
			changed.Addresses = g.addresses()
		case 2:
			changed.Ports = g.ports()
		default:
			changed.Labels = g.labels()
		}
		return &changed
	})
}

// changeNamespace changes the labels of a namespace, or deletes it before its endpoints and policies.
func (g generator) changeNamespace() {
	name := g.namespace()
	if g.percent(20) && len(g.w.Namespaces) > 1 {
		delete(g.w.Namespaces, name)
		return
	}
	if g.percent(20) {
		name = fresh("ns", func(s string) bool { return g.w.Namespaces[s] != nil })
	}
	g.w.Namespaces[name] = g.namespaceLabels(name)
}

func (g generator) changePolicy() {
	change(g, &g.w.Policies, g.networkPolicy, func(n *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
		changed := n.DeepCopy()
		switch spec := g.networkPolicySpec(); g.IntN(3) {
		case 0:
			changed.Spec = spec
		case 1:
			changed.Spec.Ingress, changed.Spec.Egress, changed.Spec.PolicyTypes = spec.Ingress, spec.Egress, spec.PolicyTypes
		default:
			changed.Spec.PodSelector = spec.PodSelector
		}
		return changed
	})
}

func (g generator) changeClusterPolicy() {
	change(g, &g.w.ClusterPolicies, g.clusterPolicy, func(c *policyv1alpha2.ClusterNetworkPolicy) *policyv1alpha2.ClusterNetworkPolicy {
		changed := c.DeepCopy()
		switch spec := g.clusterPolicySpec(); g.IntN(3) {
		case 0:
			changed.Spec = spec
		case 1:
			changed.Spec.Ingress, changed.Spec.Egress = spec.Ingress, spec.Egress
		default:
			changed.Spec.Tier, changed.Spec.Priority, changed.Spec.Subject = spec.Tier, spec.Priority, spec.Subject
		}
		return changed
	})
}

func (g generator) changeNode() {
	change(g, &g.w.Nodes, g.node, func(n *policy.Node) *policy.Node {
		changed := *n
		if g.percent(50) {
			changed.Labels = g.labels()
		} else {
			changed.Addresses = g.node().Addresses
		}
		return &changed
	})
}

func (g generator) changePodNetworks() { g.w.PodNetworks = g.podNetworks() }
