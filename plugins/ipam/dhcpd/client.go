package dhcpd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/rpc"
	"syscall"
)

// List asks the daemon at a socket for the state of its leases.
func List(socket string) ([]State, error) {
	c, err := rpc.DialHTTP("unix", socket)
	if err != nil {
		if errno, ok := errors.AsType[syscall.Errno](err); ok { // the socket is in the message already
			err = errno
		}
		return nil, fmt.Errorf("no DHCP daemon answers at %s: %w", socket, err)
	}
	defer c.Close()
	var raw []byte
	if err := c.Call("DHCP.List", &CmdArgs{}, &raw); err != nil {
		return nil, fmt.Errorf("ask the DHCP daemon at %s: %w", socket, err)
	}
	var out []State
	return out, json.Unmarshal(raw, &out)
}
