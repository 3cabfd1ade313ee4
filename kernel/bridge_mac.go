package kernel

import (
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/plainfile"
)

// macToSet returns the address to set explicitly, or "". Otherwise the bridge would take the lowest address of its
// ports, and each neighbour's entry for it would become wrong. A bridge that Fairlead created has an explicit address.
func (b *Bridge) macToSet(l *LinkInfo) string {
	switch {
	case l.MAC == NoMAC:
		return b.MAC
	case l.Group == LinkGroup || hasExplicitMAC(l):
		return ""
	}
	return l.MAC
}

const addrSet = "3" // linux/netdevice.h: NET_ADDR_SET

// hasExplicitMAC reports whether sysfs says so. Netlink does not tell it. If sysfs belongs to another network
// namespace, hasExplicitMAC returns false: setting the address again only makes the host forget its neighbours.
func hasExplicitMAC(l *LinkInfo) bool {
	for file, want := range map[string]string{"ifindex": strconv.Itoa(l.Index), "address": l.MAC, "addr_assign_type": addrSet} {
		have, err := plainfile.Read("/sys/class/net/" + l.Name + "/" + file)
		if err != nil || strings.TrimSpace(string(have)) != want {
			return false
		}
	}
	return true
}
