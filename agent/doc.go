// Package agent is the node agent: it joins the containers of this host to those
// of the cluster's other hosts.
//
// There is one loop. It reads what the store says, works out with pure functions
// what this node's kernel should hold, and has kernel.Reconciler make it so.
// Whatever happens, a change in the store, a link that went down, a route that a
// hand deleted, only makes the loop look again (ADR 10).
package agent
