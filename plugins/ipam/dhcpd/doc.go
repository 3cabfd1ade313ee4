// Package dhcpd implements the daemon of the dhcp plugin. It gets an address in a container's namespace, renews it
// while the container lives, and releases it on DEL. When the network takes an address back, the daemon removes it from
// the interface. Its socket speaks the protocol of the reference daemon.
//
// Sources: RFC 2131, 2132, 3442 (DHCPv4), RFC 8415 (DHCPv6), RFC 4861, 4862, 8106 (router advertisements).
package dhcpd
