package cni

import (
	"net/netip"
	"strings"
)

// ParseAddress reads an address that has a prefix length or none, as requests for addresses have it. It ignores the length,
// because the subnet's counts, and the zone, because results have none.
func ParseAddress(text string) (netip.Addr, error) {
	addr, _, isPrefix := strings.Cut(text, "/")
	if isPrefix {
		if _, err := netip.ParsePrefix(text); err != nil {
			return netip.Addr{}, err
		}
	}
	a, err := netip.ParseAddr(addr)
	return a.WithZone("").Unmap(), err
}
