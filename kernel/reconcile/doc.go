// Package reconcile keeps the objects of one owner, the node agent, in a network namespace
// as desired, and removes the owner's other objects.
//
//   - reconcile.go: Reconciler, its report, and its links
//   - keyed.go, removals.go: routes, rules, neighbours, forwarding entries and addresses
//   - table.go: the owner's nftables table
//   - monitor.go: kernel events
//   - events.go: whether an event contradicts what the reconciler remembers
package reconcile
