// Package agent is the node agent. It connects this host's containers to those on the cluster's other hosts.
//
// One loop reads the store's snapshot, computes the desired kernel objects with the pure functions of package desired,
// and has reconcile.Reconciler apply them. Every event (a change in the store, a link that went down, a route that an
// administrator deleted) only triggers a reconciliation (ADR 10).
package agent
