// Package ipam allocates addresses from ranges and records their owners in the directory of the reference plugin
// host-local: one file per address, named by it, with the container ID and the interface name. Either implementation
// can use the directory at any moment.
//
// With an index next to the directory, an allocation, a lookup and a release cost the same however many addresses are
// allocated. The index is only a cache: it can always be rebuilt from the directory. See docs/adr/0001-ipam-index.md
// for the design and its cost.
package ipam
