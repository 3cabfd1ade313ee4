// Package address manages the addresses of a node in the agent: the node's blocks, the addresses that the cluster
// assigns individually, and the socket at which plugins request them. It writes every decision to the store by
// compare-and-swap. All agents are equal, and none needs another.
package address
