package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

const (
	tcpFlagsAt = 13     // byte of the TCP header: RFC 9293, section 3.1
	tcpSYN     = 1 << 1 // of them
	tcpRST     = 1 << 2

	optionMSS     = 2 // RFC 9293, section 3.2: its kind; then its length, then two bytes
	optionMSSAt   = 2
	optionMSSSize = 2
)

// tcpSyn is a packet that opens a connection, either way.
func (c *compiler) tcpSyn() error {
	if err := c.above("tcp"); err != nil {
		return err
	}
	name, attrs := payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, tcpFlagsAt, 1)(reg1)
	c.expr(name, attrs)
	c.mask([]byte{tcpSYN | tcpRST})
	c.cmp(unix.NFT_CMP_EQ, []byte{tcpSYN})
	return nil
}

// clampMSS has both ends send segments that fit the packet's route: the kernel
// lowers the option, and never raises it.
func (c *compiler) clampMSS() error {
	if err := c.above("tcp"); err != nil {
		return err
	}
	c.expr("rt", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_RT_DREG, reg1)
		b.Uint32BE(unix.NFTA_RT_KEY, unix.NFT_RT_TCPMSS)
	})
	c.expr("byteorder", func(b *netlink.Buffer) {
		b.Uint32BE(unix.NFTA_BYTEORDER_SREG, reg1)
		b.Uint32BE(unix.NFTA_BYTEORDER_DREG, reg1)
		b.Uint32BE(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON)
		b.Uint32BE(unix.NFTA_BYTEORDER_LEN, optionMSSSize)
		b.Uint32BE(unix.NFTA_BYTEORDER_SIZE, optionMSSSize)
	})
	c.expr("exthdr", func(b *netlink.Buffer) {
		b.Uint8(unix.NFTA_EXTHDR_TYPE, optionMSS)
		b.Uint32BE(unix.NFTA_EXTHDR_OFFSET, optionMSSAt)
		b.Uint32BE(unix.NFTA_EXTHDR_LEN, optionMSSSize)
		b.Uint32BE(unix.NFTA_EXTHDR_OP, unix.NFT_EXTHDR_OP_TCPOPT)
		b.Uint32BE(unix.NFTA_EXTHDR_SREG, reg1)
	})
	return nil
}
