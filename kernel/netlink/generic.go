package netlink

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// GenericMessage starts the body of a message to a family of generic netlink: struct genlmsghdr of linux/genetlink.h.
func GenericMessage(cmd, version byte) Buffer { return Buffer{cmd, version, 0, 0} }

const GenericHeaderSize = 4 // bytes

// HasFamily reports whether the kernel has a family of generic netlink. Asking loads the family's module.
func HasFamily(name string) bool {
	c, err := Dial(unix.NETLINK_GENERIC, make([]byte, BufferSize))
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.FamilyID(name)
	return err == nil
}

// FamilyID returns the message type of a family.
func (c *Conn) FamilyID(name string) (uint16, error) {
	b := GenericMessage(unix.CTRL_CMD_GETFAMILY, 1)
	b.String(unix.CTRL_ATTR_FAMILY_NAME, name)
	r, err := c.Do([]Request{{Type: unix.GENL_ID_CTRL, Flags: unix.NLM_F_ACK, Body: b}})
	if err != nil {
		return 0, err
	}
	for _, m := range r[0].Messages {
		if id := Attr(m[min(GenericHeaderSize, len(m)):], unix.CTRL_ATTR_FAMILY_ID); len(id) == 2 {
			return binary.NativeEndian.Uint16(id), nil
		}
	}
	if r[0].Err == nil {
		r[0].Err = os.ErrNotExist
	}
	return 0, fmt.Errorf("the kernel has no %s: %w", name, r[0].Err)
}
