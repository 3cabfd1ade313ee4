// Package packet sends and receives datagrams on one link of a network namespace: DHCP and
// ICMPv6 messages (socket.go) and a ping (ping.go).
package packet
