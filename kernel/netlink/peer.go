package netlink

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// TCPOwner returns the user ID of the owner of a TCP socket in the namespace of the calling thread. local and remote are
// the socket's own address and that of its peer. The error is unix.ENOENT if there is none (sock_diag(7), kernel 3.3).
func TCPOwner(local, remote netip.AddrPort) (uid uint32, err error) {
	const (
		byFamily  = 20 // linux/sock_diag.h: SOCK_DIAG_BY_FAMILY
		allStates = 1<<32 - 1
		uidAt     = 64 // in struct inet_diag_msg
	)
	c, err := Dial(unix.NETLINK_SOCK_DIAG, make([]byte, 4<<10))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	// struct inet_diag_req_v2
	b := Buffer{AddrFamily(local.Addr()), unix.IPPROTO_TCP, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, allStates)
	b = binary.BigEndian.AppendUint16(b, local.Port())
	b = binary.BigEndian.AppendUint16(b, remote.Port())
	for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
		var field [16]byte
		copy(field[:], a.AsSlice())
		b = append(b, field[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)                    // any link
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // INET_DIAG_NOCOOKIE
	resp, err := c.Do([]Request{{Type: byFamily, Flags: 0, Body: b}})
	if err != nil {
		return 0, err
	}
	if resp[0].Err != nil {
		return 0, fmt.Errorf("find the owner of the connection from %s to %s: %w", local, remote, resp[0].Err)
	}
	if len(resp[0].Messages) == 0 || len(resp[0].Messages[0]) < uidAt+4 {
		return 0, unix.ENOENT
	}
	return Uint32(resp[0].Messages[0][uidAt:]), nil
}
