package kernel

import (
	"github.com/fairlead/fairlead/kernel/netlink"
	"golang.org/x/sys/unix"
)

// States of a bridge port, linux/if_bridge.h.
const (
	PortNone       = -1 // not a bridge port
	PortForwarding = 3
)

// PortState returns the state of a bridge port.
func (l *LinkInfo) PortState() int {
	if v := netlink.Attr(l.port, brportState); len(v) > 0 {
		return int(v[0])
	}
	return PortNone
}

// Isolated reports whether a bridge port is isolated: it sends only to ports that are not.
func (l *LinkInfo) Isolated() bool {
	return netlink.Uint8(netlink.Attr(l.port, unix.IFLA_BRPORT_ISOLATED)) != 0
}

// Hairpin reports whether frames may leave the bridge port that they arrived on.
func (l *LinkInfo) Hairpin() bool {
	return netlink.Uint8(netlink.Attr(l.port, unix.IFLA_BRPORT_MODE)) != 0
}
