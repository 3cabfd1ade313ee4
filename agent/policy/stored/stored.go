// Package stored keeps network policies in the agents' store, for clusters without Kubernetes. Their endpoints are the
// containers that the agents publish there.
//
// A policy is an object of the Kubernetes API in JSON. Its key is policies/KIND/NAME or policies/KIND/NAMESPACE/NAME.
package stored

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/agent/policy/manifest"
	"github.com/fairlead/fairlead/agent/store"
)

// Prefixes returns the prefixes of all keys that affect policy.
func Prefixes() []string {
	return []string{cluster.PoliciesPrefix, cluster.EndpointsPrefix, cluster.NodesPrefix}
}

// Document is an object in the store. Exactly one field is set.
type Document struct {
	Namespace     *corev1.Namespace
	Policy        *networkingv1.NetworkPolicy
	ClusterPolicy *v1alpha2.ClusterNetworkPolicy
	Endpoint      *cluster.Endpoint
	Node          *cluster.Node
}

// Name returns the name of a policy or a namespace, as users write it: "networkpolicy/shop/db". It is the end of the
// key.
func (d Document) Name() string {
	switch {
	case d.Policy != nil:
		return "networkpolicy/" + d.Policy.Namespace + "/" + d.Policy.Name
	case d.ClusterPolicy != nil:
		return "clusternetworkpolicy/" + d.ClusterPolicy.Name
	case d.Namespace != nil:
		return "namespace/" + d.Namespace.Name
	}
	return ""
}

// words returns the namespace and the name of a policy, or the name alone.
func (d Document) words() []string {
	switch {
	case d.Policy != nil:
		return []string{d.Policy.Namespace, d.Policy.Name}
	case d.ClusterPolicy != nil:
		return []string{d.ClusterPolicy.Name}
	}
	return []string{d.Namespace.Name}
}

// Key returns the key of a policy or a namespace in the store.
func (d Document) Key() string { return cluster.PoliciesPrefix + d.Name() }

// Encode returns the value of a policy or a namespace in the store: what the user wrote, without what an API server
// adds.
func (d Document) Encode() ([]byte, error) {
	for _, word := range d.words() {
		if errs := validation.IsDNS1123Subdomain(word); len(errs) > 0 {
			return nil, fmt.Errorf("%s: invalid name: %s", d.Name(), strings.Join(errs, "; "))
		}
	}
	switch {
	case d.Policy != nil:
		p := &networkingv1.NetworkPolicy{Spec: d.Policy.Spec}
		p.APIVersion, p.Kind, p.Namespace, p.Name, p.Labels = "networking.k8s.io/v1", "NetworkPolicy", d.Policy.Namespace, d.Policy.Name, d.Policy.Labels
		return json.Marshal(p)
	case d.ClusterPolicy != nil:
		p := &v1alpha2.ClusterNetworkPolicy{Spec: d.ClusterPolicy.Spec}
		p.APIVersion, p.Kind, p.Name, p.Labels = "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy", d.ClusterPolicy.Name, d.ClusterPolicy.Labels
		return json.Marshal(p)
	}
	n := &corev1.Namespace{}
	n.APIVersion, n.Kind, n.Name, n.Labels = "v1", "Namespace", d.Namespace.Name, d.Namespace.Labels
	return json.Marshal(n)
}

// Documents returns the policies and namespaces of a world, sorted by name. Pods and nodes of it are left out.
func Documents(w *policy.World) (out []Document) {
	for name, labels := range w.Namespaces {
		n := &corev1.Namespace{}
		n.Name, n.Labels = name, labels
		out = append(out, Document{Namespace: n})
	}
	for _, p := range w.Policies {
		out = append(out, Document{Policy: p})
	}
	for _, p := range w.ClusterPolicies {
		out = append(out, Document{ClusterPolicy: p})
	}
	slices.SortFunc(out, func(a, b Document) int { return cmp.Compare(a.Name(), b.Name()) })
	return out
}

// Decode reads an entry of the store. It returns an empty document for a key that policy does not depend on.
func Decode(key string, value []byte) (Document, error) {
	if !strings.HasPrefix(key, cluster.PoliciesPrefix) {
		d, err := cluster.Decode(key, value)
		switch d := d.(type) {
		case *cluster.Endpoint:
			return Document{Endpoint: d}, err
		case *cluster.Node:
			return Document{Node: d}, err
		}
		return Document{}, err
	}
	w, _, err := manifest.Parse(value)
	if err != nil {
		return Document{}, fmt.Errorf("read %s: %w", key, err)
	}
	list := Documents(w)
	if len(list) != 1 || list[0].Key() != key {
		return Document{}, fmt.Errorf("read %s: the value is not the object that the key names", key)
	}
	return list[0], nil
}

// Endpoints are attachments by the endpoint that they belong to, policy.EndpointKey, and by their keys.
type Endpoints map[string]map[string]*cluster.Endpoint

// EndpointName returns the name of a container's endpoint: containers of two nodes may have one name.
func EndpointName(name, node string) string { return name + "@" + node }

// Set adds an attachment, or removes it. It returns the endpoint that the attachment belongs to, and whether that has
// any attachment now. An attachment without the plugin fairlead-policy belongs to no endpoint: e is nil.
func (all Endpoints) Set(a *cluster.Endpoint, add bool) (e *policy.Endpoint, exists bool) {
	namespace, name, ok := strings.Cut(a.Pod, "/")
	if !ok {
		return nil, false
	}
	name = EndpointName(name, a.Node)
	of := policy.EndpointKey(namespace, name)
	if all[of] == nil {
		all[of] = map[string]*cluster.Endpoint{}
	}
	if delete(all[of], a.Key()); add {
		all[of][a.Key()] = a
	}
	e = &policy.Endpoint{Namespace: namespace, Name: name, Node: a.Node, Labels: map[string]string{}}
	newest := newestOf(all[of])
	if newest == nil {
		delete(all, of)
		return e, false
	}
	e.Created = time.Unix(0, 0).Add(newest.Since) // comparable on one host, where a container gets the address of another
	for _, key := range slices.Sorted(maps.Keys(all[of])) {
		a := all[of][key]
		if a.Container == newest.Container { // one container counts, with the labels of all its attachments
			maps.Copy(e.Labels, a.Labels)
		}
		addAddresses(e, a)
	}
	return e, true
}

// newestOf returns the attachment that was added last, or nil. An earlier container with its name ended without a DEL.
func newestOf(list map[string]*cluster.Endpoint) (newest *cluster.Endpoint) {
	for _, a := range list {
		if newest == nil || cmp.Or(cmp.Compare(a.Since, newest.Since), cmp.Compare(a.Key(), newest.Key())) > 0 {
			newest = a
		}
	}
	return newest
}

func addAddresses(e *policy.Endpoint, a *cluster.Endpoint) {
	ips := usable(a.IPs)
	if a.Network == cluster.DefaultNetwork {
		e.Addresses = append(e.Addresses, ips...)
		return
	}
	if e.Isolated == nil {
		e.Isolated = map[string][]netip.Addr{}
	}
	e.Isolated[a.Network] = append(e.Isolated[a.Network], ips...)
}

// usable returns addresses as the kernel knows them. Another host wrote them, and the kernel accepts no rule with an
// invalid one.
func usable(list []netip.Addr) (out []netip.Addr) {
	for _, a := range list {
		if a.IsValid() && !a.IsUnspecified() {
			out = append(out, a.Unmap().WithZone(""))
		}
	}
	return out
}

// NodeOf returns a node as policy sees it.
func NodeOf(n *cluster.Node) *policy.Node {
	out := &policy.Node{Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name}, Problem: n.PolicyProblem}
	for _, p := range n.Addresses {
		out.Addresses = append(out.Addresses, p.Addr())
	}
	return out
}

// World reads everything that policy depends on. The second result lists what is invalid.
func World(ctx context.Context, s store.Store) (w *policy.World, invalid []error, err error) {
	w = &policy.World{Namespaces: map[string]map[string]string{}}
	attachments, endpoints := Endpoints{}, map[string]*policy.Endpoint{}
	for _, prefix := range Prefixes() {
		list, _, err := s.List(ctx, prefix)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range list {
			d, err := Decode(e.Key, e.Value)
			if err != nil {
				invalid = append(invalid, err)
			}
			if d.addTo(w); d.Endpoint == nil {
				continue
			}
			if e, ok := attachments.Set(d.Endpoint, true); ok {
				endpoints[policy.EndpointKey(e.Namespace, e.Name)] = e
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		e := endpoints[name]
		w.Endpoints = append(w.Endpoints, e)
		if w.Namespaces[e.Namespace] == nil {
			w.Namespaces[e.Namespace] = map[string]string{corev1.LabelMetadataName: e.Namespace}
		}
	}
	return w, invalid, nil
}

func (d Document) addTo(w *policy.World) {
	switch {
	case d.Namespace != nil:
		w.Add(d.Namespace)
	case d.Policy != nil:
		w.Add(d.Policy)
	case d.ClusterPolicy != nil:
		w.Add(d.ClusterPolicy)
	case d.Node != nil:
		w.Nodes = append(w.Nodes, NodeOf(d.Node))
	}
}
