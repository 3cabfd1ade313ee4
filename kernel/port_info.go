package kernel

import (
	"github.com/fairlead/fairlead/kernel/netlink"
	"golang.org/x/sys/unix"
)

// The states of a bridge port, linux/if_bridge.h.
const (
	PortNone       = -1 // the link is no port
	PortForwarding = 3
)

// PortState is the state of a bridge port.
func (l *LinkInfo) PortState() int {
	if v := netlink.Attr(l.port, brportState); len(v) > 0 {
		return int(v[0])
	}
	return PortNone
}

// Isolated tells whether a bridge port talks to ports that are not isolated only.
func (l *LinkInfo) Isolated() bool {
	return netlink.Uint8(netlink.Attr(l.port, unix.IFLA_BRPORT_ISOLATED)) != 0
}

// Hairpin tells whether frames may leave a bridge port that they came by.
func (l *LinkInfo) Hairpin() bool {
	return netlink.Uint8(netlink.Attr(l.port, unix.IFLA_BRPORT_MODE)) != 0
}
