// Package dhcpd is the daemon that keeps DHCP leases for the plugin dhcp: it
// gets an address in a container's namespace, renews it while the container
// lives, releases it on DEL, and takes it off the interface when the network
// takes it back. Its socket speaks what the reference's daemon speaks.
//
// Sources: RFC 2131, 2132, 3442 (DHCPv4), RFC 8415 (DHCPv6), RFC 4861, 4862,
// 8106 (routers' advertisements).
package dhcpd
