// Package netlink is the wire: sockets, messages, attributes and generic netlink.
//
// It knows no objects. Package kernel builds the messages for links, addresses and routes,
// package nft those for nftables, package wireguard those for WireGuard.
//
//   - conn.go: a socket, requests, replies, dumps and errors
//   - batch.go: an nftables transaction
//   - stream.go: messages that the kernel sends without a request
//   - attr.go: attributes, written and read
//   - rtnetlink.go: headers and fields of rtnetlink that several packages need
//   - generic.go: families of generic netlink
//
// Sources: netlink(7), rtnetlink(7).
package netlink
