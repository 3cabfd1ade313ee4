// Package ipam holds the IPAM plugins: host-local, static, dhcp, whereabouts and fairlead-ipam.
package ipam
