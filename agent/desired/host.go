package desired

import (
	"net/netip"

	"github.com/fairlead/fairlead/agent/backend"
)

// Host is the state of this host that the desired state depends on.
type Host struct {
	Underlay  backend.Underlay
	Addresses []netip.Prefix // at most one of each family

	MaxLinkMTU int      // largest MTU of the links to containers, in bytes
	Uplinks    []string // with default routes from router advertisements

	KeyFile, Socket string   // WireGuard: private key file, and socket of a userspace device
	Program         []string // WireGuard: command that starts a userspace device
	Flannel         bool     // name the tunnel as flannel does
	Learned         []backend.Learned

	Wanted []string // isolated networks that plugins wait for
}
