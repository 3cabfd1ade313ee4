package kernel

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// genl is the body of a message to a family of generic netlink: linux/genetlink.h,
// struct genlmsghdr.
func genl(cmd, version byte) buf { return buf{cmd, version, 0, 0} }

const genlHeader = 4 // bytes

// GenericFamily tells whether the kernel has a family of generic netlink; one of
// a module that is there is loaded by asking.
func GenericFamily(name string) bool {
	c, err := dial(unix.NETLINK_GENERIC, make([]byte, rxSize))
	if err != nil {
		return false
	}
	defer c.close()
	_, err = c.genericID(name)
	return err == nil
}

// genericID is the message type of a family.
func (c *conn) genericID(name string) (uint16, error) {
	b := genl(unix.CTRL_CMD_GETFAMILY, 1)
	b.str(unix.CTRL_ATTR_FAMILY_NAME, name)
	r, err := c.do([]request{{typ: unix.GENL_ID_CTRL, flags: unix.NLM_F_ACK, body: b}})
	if err != nil {
		return 0, err
	}
	for _, m := range r[0].msgs {
		if id := attr(m[min(genlHeader, len(m)):], unix.CTRL_ATTR_FAMILY_ID); len(id) == 2 {
			return binary.NativeEndian.Uint16(id), nil
		}
	}
	if r[0].err == nil {
		r[0].err = os.ErrNotExist
	}
	return 0, fmt.Errorf("the kernel has no %s: %w", name, r[0].err)
}

// linux/ethtool_netlink.h
const (
	ethtoolFeaturesGet    = 11 // ETHTOOL_MSG_FEATURES_GET
	ethtoolFeaturesSet    = 12 // ETHTOOL_MSG_FEATURES_SET
	ethtoolHeader         = 1  // ETHTOOL_A_FEATURES_HEADER
	ethtoolHeaderName     = 2  // ETHTOOL_A_HEADER_DEV_NAME
	ethtoolFeaturesWanted = 3  // ETHTOOL_A_FEATURES_WANTED
	ethtoolFeaturesActive = 4  // ETHTOOL_A_FEATURES_ACTIVE
	ethtoolBitsetBits     = 3  // ETHTOOL_A_BITSET_BITS
	ethtoolBitsetBit      = 1  // ETHTOOL_A_BITSET_BITS_BIT
	ethtoolBitName        = 2  // ETHTOOL_A_BITSET_BIT_NAME
	ethtoolBitValue       = 3  // ETHTOOL_A_BITSET_BIT_VALUE
)

// txChecksums are the features by which a veth leaves checksums to others.
func txChecksums() []string { return []string{"tx-checksum-ip-generic", "tx-checksum-sctp"} }

// setTxChecksum has a link leave checksums to its hardware or not: ethtool -K
// LINK tx on|off.
func (e *Engine) setTxChecksum(s Side, link string, on bool) error {
	_, err := e.ethtool(s, ethtoolFeaturesSet, link, func(b *buf) {
		b.nest(ethtoolFeaturesWanted, func(b *buf) {
			b.nest(ethtoolBitsetBits, func(b *buf) {
				for _, name := range txChecksums() {
					b.nest(ethtoolBitsetBit, func(b *buf) {
						b.str(ethtoolBitName, name)
						if on {
							b.bytes(ethtoolBitValue, nil)
						}
					})
				}
			})
		})
	})
	return err
}

// txChecksum tells whether a link leaves checksums to its hardware.
func (e *Engine) txChecksum(s Side, link string) (on bool, err error) {
	msgs, err := e.ethtool(s, ethtoolFeaturesGet, link, func(*buf) {})
	for _, m := range msgs {
		active := attr(m[min(genlHeader, len(m)):], ethtoolFeaturesActive)
		attrs(attr(active, ethtoolBitsetBits), func(_ uint16, bit []byte) {
			on = on || text(attr(bit, ethtoolBitName)) == txChecksums()[0]
		})
	}
	return on, err
}

// ethtool asks for a link's features, or sets them.
func (e *Engine) ethtool(s Side, cmd byte, link string, more func(*buf)) (msgs [][]byte, err error) {
	if err := e.flush(); err != nil {
		return nil, err
	}
	err = e.inside(s, func() error {
		c, err := dial(unix.NETLINK_GENERIC, e.rx)
		if err != nil {
			return err
		}
		defer c.close()
		family, err := c.genericID("ethtool")
		if err != nil {
			return err
		}
		b := genl(cmd, 1)
		b.nest(ethtoolHeader, func(b *buf) { b.str(ethtoolHeaderName, link) })
		more(&b)
		r, err := c.do([]request{{typ: family, flags: unix.NLM_F_ACK, body: b}})
		if err == nil {
			msgs, err = r[0].msgs, r[0].err
		}
		if err != nil {
			return fmt.Errorf("ethtool -k %s: %w", link, err)
		}
		return nil
	})
	return msgs, err
}

// HasLinkType tells whether the kernel makes links of a type, by making one in a
// namespace of its own that ends at once.
func HasLinkType(typ string) bool {
	return inNewNetns(func(c *conn) error {
		body := newLink("try", "", 0)
		body.nest(unix.IFLA_LINKINFO, func(n *buf) { n.str(unix.IFLA_INFO_KIND, typ) })
		r, err := c.do([]request{{unix.RTM_NEWLINK, unix.NLM_F_CREATE | unix.NLM_F_ACK, body}})
		if err == nil {
			err = r[0].err
		}
		return err
	}) == nil
}
