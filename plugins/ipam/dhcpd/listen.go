package dhcpd

import (
	"net"

	"github.com/fairlead/fairlead/internal/listen"
)

// Listen returns the daemon's socket: the one that systemd passed, or a new one at the path.
func (d *Daemon) Listen(getenv func(string) string) (net.Listener, error) {
	return listen.Unix(d.o.HostPrefix+d.o.SocketPath, "DHCP daemon", getenv)
}
