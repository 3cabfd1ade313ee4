// Package wireguard reads and configures a WireGuard device, of the kernel or of a process.
//
//   - changes.go: the difference between a device and its desired configuration
//   - netlink.go: a device of the kernel, over generic netlink
//   - socket.go: a device of a process, over a UNIX socket (WireGuard's cross-platform interface)
//   - key.go: keys
package wireguard
