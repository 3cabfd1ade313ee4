package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

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

// txChecksums returns the features by which a veth leaves checksums to hardware.
func txChecksums() []string { return []string{"tx-checksum-ip-generic", "tx-checksum-sctp"} }

// setTxChecksum switches checksum offloading of a link: ethtool -K LINK tx on|off.
func (e *Engine) setTxChecksum(s Side, link string, on bool) error {
	_, err := e.ethtool(s, ethtoolFeaturesSet, link, func(b *netlink.Buffer) {
		b.Nest(ethtoolFeaturesWanted, func(b *netlink.Buffer) {
			b.Nest(ethtoolBitsetBits, func(b *netlink.Buffer) {
				for _, name := range txChecksums() {
					b.Nest(ethtoolBitsetBit, func(b *netlink.Buffer) {
						b.String(ethtoolBitName, name)
						if on {
							b.Bytes(ethtoolBitValue, nil)
						}
					})
				}
			})
		})
	})
	return err
}

// txChecksum reports whether a link offloads checksums.
func (e *Engine) txChecksum(s Side, link string) (on bool, err error) {
	msgs, err := e.ethtool(s, ethtoolFeaturesGet, link, func(*netlink.Buffer) {})
	for _, m := range msgs {
		active := netlink.Attr(m[min(netlink.GenericHeaderSize, len(m)):], ethtoolFeaturesActive)
		netlink.EachAttr(netlink.Attr(active, ethtoolBitsetBits), func(_ uint16, bit []byte) {
			on = on || netlink.Text(netlink.Attr(bit, ethtoolBitName)) == txChecksums()[0]
		})
	}
	return on, err
}

// ethtool reads or sets the features of a link.
func (e *Engine) ethtool(s Side, cmd byte, link string, more func(*netlink.Buffer)) (msgs [][]byte, err error) {
	if err := e.flush(); err != nil {
		return nil, err
	}
	err = e.InNetns(s, func() error {
		c, err := netlink.Dial(unix.NETLINK_GENERIC, e.rx)
		if err != nil {
			return err
		}
		defer c.Close()
		family, err := c.FamilyID("ethtool")
		if err != nil {
			return err
		}
		b := netlink.GenericMessage(cmd, 1)
		b.Nest(ethtoolHeader, func(b *netlink.Buffer) { b.String(ethtoolHeaderName, link) })
		more(&b)
		r, err := c.Do([]netlink.Request{{Type: family, Flags: unix.NLM_F_ACK, Body: b}})
		if err == nil {
			msgs, err = r[0].Messages, r[0].Err
		}
		if err != nil {
			return fmt.Errorf("ethtool -k %s: %w", link, err)
		}
		return nil
	})
	return msgs, err
}
