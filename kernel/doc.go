// Package kernel holds the objects that a network is made of (links,
// addresses, routes, rules, neighbours, sysctls, nftables tables and elements)
// and the engine that makes the kernel hold them, compares, or removes them.
//
// It is the only package that speaks netlink and writes under /proc/sys.
// Files: an object kind each; engine.go drives them; netlink.go, attr.go and
// nft_*.go are the wire. The smallest kernel is 5.14, unless an object says more.
package kernel
