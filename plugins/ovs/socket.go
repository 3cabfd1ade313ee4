package ovs

import (
	"net/netip"
	"strings"
)

// database returns the database's address for the key socket_file, in the syntax of Open vSwitch's commands, or what is
// wrong with it.
func database(s string) (addr, problem string) {
	const want = `want the path of a socket, also as "unix:/path", or "tcp:ADDRESS:PORT"`
	if rest, ok := strings.CutPrefix(s, "tcp:"); ok {
		if _, err := netip.ParseAddrPort(rest); err != nil {
			return "", want
		}
		return s, ""
	}
	path := strings.TrimPrefix(s, "unix:")
	switch {
	case !strings.HasPrefix(path, "/"):
		return "", want
	case len(path) > maxPath:
		return "", "a socket's path has 107 bytes at most"
	}
	return "unix:" + path, ""
}

const maxPath = 107 // unix(7): sun_path without its terminating NUL
