package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// nodeAnnotation has what a node's agent published: its cluster.Node.
const nodeAnnotation = Group + "/node"

// nodeEntry returns a Node as an entry: what its agent published or, before that, the addresses in its status. With
// Options.Flannel, it is also what flanneld published.
func (s *Store) nodeEntry(n *corev1.Node) store.Entry {
	e := store.Entry{Key: cluster.NodeKey(n.Name), Revision: number(n.ResourceVersion)}
	doc := cluster.Node{Name: n.Name}
	host := NodeAddresses(n)
	if text := n.Annotations[nodeAnnotation]; text == "" {
		for _, a := range host {
			doc.Addresses = append(doc.Addresses, netip.PrefixFrom(a, a.BitLen()))
		}
	} else if err := json.Unmarshal([]byte(text), &doc); err != nil {
		e.Value = []byte(text) // which the reader reports
		return e
	}
	doc = *doc.Published()
	s.addFlannel(&doc, n.Annotations)
	doc.HostAddresses = host
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable {
			doc.NetworkUnavailable = string(c.Status)
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			doc.PodCIDRs = append(doc.PodCIDRs, p.Masked())
		}
	}
	e.Value, _ = json.Marshal(doc) // a document of strings and addresses
	return e
}

// addFlannel completes a node's document with flannel's annotations, unless they are those that its agent published. They
// count even if the node has an agent's annotation: it may have gone back to flannel.
func (s *Store) addFlannel(doc *cluster.Node, annotations map[string]string) {
	doc.Flannel = nil
	if s.flannel == nil || doc.FlannelLease != nil && s.flannel.Match(doc.FlannelLease, annotations) {
		return
	}
	doc.FlannelLease = nil
	by := s.flannel.Parse(annotations)
	if by == nil {
		return
	}
	doc.Flannel = by.Flannel
	if len(by.Addresses) > 0 {
		doc.Addresses = by.Addresses
	}
	if by.Flannel.Type == cluster.VXLAN {
		doc.Tunnel, doc.Tunnel6 = by.Flannel.MAC, by.Flannel.V6
	}
}

// NodeAddresses returns the InternalIPs in a Node's status, the first of each family, by which other nodes reach the node.
// Some cloud providers also list link-local addresses.
func NodeAddresses(n *corev1.Node) (list []netip.Addr) {
	six := map[bool]bool{}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		ip = ip.Unmap()
		if a.Type != corev1.NodeInternalIP || err != nil || six[ip.Is6()] || ip.IsLinkLocalUnicast() {
			continue
		}
		six[ip.Is6()] = true
		list = append(list, ip)
	}
	return list
}

func (s *Store) getNode(ctx context.Context, name string) (store.Entry, error) {
	n, err := s.node(ctx, name)
	if err != nil {
		return store.Entry{}, err
	}
	return s.nodeEntry(n), nil
}

// node reads a Node. After an error, the Node is empty.
func (s *Store) node(ctx context.Context, name string) (*corev1.Node, error) {
	n := &corev1.Node{}
	return n, convert(s.core.Get().Resource("nodes").Name(name).Do(ctx).Into(n))
}

func (s *Store) listNodes(ctx context.Context) (entries []store.Entry, revision int64, err error) {
	revision, err = s.eachNode(ctx, func(n *corev1.Node) { entries = append(entries, s.nodeEntry(n)) })
	return entries, revision, err
}

// watchNodes calls f for each change of a node's entry. A Node changes often for other reasons.
func (s *Store) watchNodes(ctx context.Context, after int64, f func(store.Batch) error) error {
	w, err := s.core.Get().Resource("nodes").MaxRetries(0).
		VersionedParams(&metav1.ListOptions{Watch: true, AllowWatchBookmarks: true, ResourceVersion: format(after)}, s.parameters).Watch(ctx)
	if err != nil {
		return convert(err)
	}
	defer w.Stop()
	last := map[string]string{}
	for ev := range w.ResultChan() {
		n, ok := ev.Object.(*corev1.Node)
		if !ok || ev.Type == watch.Error {
			return convert(apierrors.FromObject(ev.Object))
		}
		e := s.nodeEntry(n)
		b := store.Batch{Revision: e.Revision}
		gone := ev.Type == watch.Deleted
		if known, seen := last[e.Key]; ev.Type != watch.Bookmark && (gone || !seen || known != string(e.Value)) {
			b.Events = []store.Event{{Entry: e, Deleted: gone}}
			last[e.Key] = string(e.Value)
		}
		if gone {
			delete(last, e.Key)
		}
		if err := f(b); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errWatchEnded
}

// putNode publishes a node's document. Only its agent writes it, so the expected revision does not matter.
func (s *Store) putNode(ctx context.Context, key string, value []byte) (int64, error) {
	name := key[len(cluster.NodesPrefix):]
	revision, err := s.patchNode(ctx, name, value)
	if errors.Is(err, os.ErrNotExist) {
		return 0, &missingNodeError{name}
	}
	return revision, err
}

// SetNetworkUnavailable sets the condition NetworkUnavailable of a Node, which has its status since a time. While it is True,
// Kubernetes keeps new pods away from the node by a taint.
func (s *Store) SetNetworkUnavailable(ctx context.Context, node string, unavailable bool, since time.Time, reason, why string) error {
	status := corev1.ConditionFalse
	if unavailable {
		status = corev1.ConditionTrue
	}
	condition := corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: status, Reason: reason, Message: message(why),
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.NewTime(since),
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}})
	if err != nil {
		return err
	}
	return convert(s.client.Patch(types.StrategicMergePatchType).AbsPath(nodesPath, node, "status").SetHeader("Accept", metadataOnly).Body(body).Do(ctx).Error())
}

// KeepsNoEndpoints says that List returns no endpoints: the API has the pods.
func (s *Store) KeepsNoEndpoints() {}

// RefuseToRemove returns the error of an attempt to remove a node: only Kubernetes does that.
func (s *Store) RefuseToRemove(node string) error {
	return fmt.Errorf("node %s belongs to Kubernetes\nType: kubectl delete node %s", node, node)
}

// ownerNode returns a reference to a Node as the owner of another object.
func (s *Store) ownerNode(ctx context.Context, name string) (metav1.OwnerReference, error) {
	raw, err := Body(s.client.Get().AbsPath(nodesPath, name).SetHeader("Accept", metadataOnly).Do(ctx))
	if err = convert(err); errors.Is(err, os.ErrNotExist) {
		err = &missingNodeError{name}
	}
	if err != nil {
		return metav1.OwnerReference{}, err
	}
	var o metav1.PartialObjectMetadata
	err = json.Unmarshal(raw, &o)
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: o.UID}, err
}

type missingNodeError struct{ name string }

func (e *missingNodeError) Error() string {
	return "the cluster has no Node " + e.name + `: set "node" in the agent's configuration to the kubelet's node name`
}
