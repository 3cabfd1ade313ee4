// Package cluster defines the store's keys and documents (networks, nodes, blocks, addresses and endpoints) and a
// snapshot of them. It contains data and validation only; it accesses neither a store nor the kernel.
package cluster
