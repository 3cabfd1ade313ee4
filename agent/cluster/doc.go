// Package cluster is what the store's keys mean: networks, nodes, blocks,
// addresses and endpoints, each a small JSON document, and a snapshot of them.
// It is data and validation; it reads no store and no kernel.
package cluster
