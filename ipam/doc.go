// Package ipam hands out addresses of ranges and remembers who holds them, in
// the reference plugin host-local's own directory: one file an address, named
// by it, that holds the container ID and the interface name. Either
// implementation can run on the directory at any moment.
//
// An index beside the directory makes an allocation, a look-up and a release
// cost the same however many addresses are held. It is only a memory: whatever
// happens to it, it is built again from the directory.
// docs/adr/0001-ipam-index.md tells how and what it costs.
package ipam
