// Package nflog receives the packets that rules with "log group NUMBER" send to a netfilter log group.
//
//   - nflog.go: a listener
//   - packet.go: what the kernel says about a packet, and the packet's headers
//
// Sources: linux/netfilter/nfnetlink_log.h; RFC 791, RFC 8200.
package nflog
