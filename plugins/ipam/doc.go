// Package ipam holds the plugins that give addresses: host-local out of
// ranges, static as the configuration lists them.
package ipam
