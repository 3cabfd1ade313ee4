// Package kube keeps a cluster's desired state in the Kubernetes API: nodes are Nodes, networks, blocks and addresses are
// objects of the group fairlead.io, sessions and VNIs are Leases. See docs/adr/0016-kubernetes-as-the-store.md.
//
// It is a store.Store with these differences:
//
//   - A transaction is not atomic for readers. Its changes are made one after another. If one of them conflicts, the
//     changes before it are undone.
//   - A key's revision is the object's resourceVersion. A change succeeds if the object has not changed since the expected
//     revision. The API compares resource versions as numbers since Kubernetes 1.35; before, they were numbers too.
//   - Endpoints are not stored: the API has the pods. Writes of endpoints succeed and change nothing.
//   - Only Kubernetes creates and deletes nodes. The store writes an annotation of a Node.
package kube
