// Package kernel holds the objects that a network consists of (links, addresses, routes, rules, neighbours, sysctls,
// nftables tables and elements) and the engine that creates, compares and removes them.
//
// Only this package and its subpackages use netlink and write under /proc/sys. The oldest supported kernel is 5.14
// unless an object says otherwise.
//
// The engine:
//
//   - engine.go: namespaces, sockets, the queue of requests
//   - apply.go: Apply, Undo, Remove, Check
//   - repair.go, repair_objects.go, repair_nft.go: Repair, which restores the objects of an attachment
//   - nft_commit.go, nft_remove.go: nftables transactions of objects
//   - link_group.go, link_state.go, retry.go, tagged.go: removal of many links, moves between masters, retries, garbage collection
//   - single.go: single objects, for package reconcile
//
// Objects have one file for each kind; object.go lists them. owner.go holds the names and tags that derive from an
// attachment. Files named *_info.go read the kernel's state.
//
// Below this package are netlink and netns (the wire), nft, packet and wireguard. Above it are reconcile, for the
// agent, and inspect, for diagnosis. Package nftable needs no engine: it keeps one large nftables table.
package kernel
