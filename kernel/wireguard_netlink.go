package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// wireguardLink is a device of the kernel's, spoken with by generic netlink:
// linux/wireguard.h, kernel 5.6.
type wireguardLink struct {
	e    *Engine
	name string
}

const (
	wireguardVersion = 1

	allowedPerMessage = 256
	bytesPerMessage   = 16 << 10 // an attribute, and so a message's peers, holds 64 KiB at most
)

// conn opens a socket for some messages.
func (l wireguardLink) conn(f func(c *conn, family uint16) error) error {
	if err := l.e.flush(); err != nil {
		return err
	}
	c, err := dial(unix.NETLINK_GENERIC, l.e.rx)
	if err != nil {
		return err
	}
	defer c.close()
	family, err := c.genericID("wireguard")
	if err != nil {
		return err
	}
	return f(c, family)
}

func (l wireguardLink) get() (*wireguardDevice, error) {
	d := &wireguardDevice{peers: map[wireguardKey]*wireguardPeer{}}
	err := l.conn(func(c *conn, family uint16) error {
		body := genl(unix.WG_CMD_GET_DEVICE, wireguardVersion)
		body.str(unix.WGDEVICE_A_IFNAME, l.name)
		msgs, err := c.dump(request{typ: family, body: body})
		for _, m := range msgs {
			attrs(m[min(genlHeader, len(m)):], d.attr)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wg show %s: %w", l.name, err)
	}
	return d, nil
}

func (d *wireguardDevice) attr(typ uint16, v []byte) {
	switch typ {
	case unix.WGDEVICE_A_PRIVATE_KEY:
		copy(d.private[:], v)
	case unix.WGDEVICE_A_LISTEN_PORT:
		d.port = int(num16(v))
	case unix.WGDEVICE_A_PEERS:
		attrs(v, func(_ uint16, p []byte) { d.peer(p) })
	}
}

// peer reads a peer; one whose addresses did not fit goes on in the next message.
func (d *wireguardDevice) peer(v []byte) {
	var key wireguardKey
	copy(key[:], attr(v, unix.WGPEER_A_PUBLIC_KEY))
	p := d.peers[key]
	if p == nil {
		p = &wireguardPeer{}
		d.peers[key] = p
	}
	attrs(v, func(typ uint16, v []byte) {
		switch typ {
		case unix.WGPEER_A_ENDPOINT:
			p.endpoint = socketAddress(v)
		case unix.WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL:
			p.keepalive = int(num16(v))
		case unix.WGPEER_A_LAST_HANDSHAKE_TIME: // struct __kernel_timespec
			if len(v) >= 16 && (num64(v) != 0 || num64(v[8:]) != 0) {
				p.handshake = time.Unix(int64(num64(v)), int64(num64(v[8:])))
			}
		case unix.WGPEER_A_ALLOWEDIPS:
			attrs(v, func(_ uint16, a []byte) {
				ip := address(attr(a, unix.WGALLOWEDIP_A_IPADDR))
				p.allowed = append(p.allowed, netip.PrefixFrom(ip, int(num8(attr(a, unix.WGALLOWEDIP_A_CIDR_MASK)))))
			})
		}
	})
}

// socketAddress reads struct sockaddr_in or sockaddr_in6.
func socketAddress(v []byte) netip.AddrPort {
	if len(v) < 8 {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(v[2:])
	if num16(v) == unix.AF_INET6 && len(v) >= 24 {
		return netip.AddrPortFrom(address(v[8:24]), port)
	}
	return netip.AddrPortFrom(address(v[4:8]), port)
}

func appendSocketAddress(b []byte, a netip.AddrPort) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(family(a.Addr())))
	b = binary.BigEndian.AppendUint16(b, a.Port())
	if a.Addr().Is4() {
		b = append(b, a.Addr().AsSlice()...)
		return append(b, make([]byte, 8)...)
	}
	b = append(b, 0, 0, 0, 0) // flow
	b = append(b, a.Addr().AsSlice()...)
	return append(b, 0, 0, 0, 0) // scope
}

func (l wireguardLink) set(c wireguardChanges) error {
	if c.none() {
		return nil
	}
	return l.conn(func(conn *conn, family uint16) error {
		for _, body := range c.messages(l.name) {
			r, err := conn.do([]request{{family, unix.NLM_F_ACK, body}})
			if err == nil {
				err = r[0].err
			}
			if err != nil {
				return fmt.Errorf("wg set %s: %w", l.name, err)
			}
		}
		return nil
	})
}

// messages are the changes in as many messages as they need.
func (c wireguardChanges) messages(name string) (out []buf) {
	head := func() buf {
		b := genl(unix.WG_CMD_SET_DEVICE, wireguardVersion)
		b.str(unix.WGDEVICE_A_IFNAME, name)
		return b
	}
	first := head()
	if c.private != nil {
		first.bytes(unix.WGDEVICE_A_PRIVATE_KEY, c.private[:])
	}
	if c.port != 0 {
		first.u16(unix.WGDEVICE_A_LISTEN_PORT, uint16(c.port))
	}
	parts := c.parts()
	for b := first; ; b = head() {
		b.nest(unix.WGDEVICE_A_PEERS, func(n *buf) {
			for len(parts) > 0 && len(*n) < bytesPerMessage {
				n.nest(unix.NFTA_LIST_ELEM, parts[0].append)
				parts = parts[1:]
			}
		})
		out = append(out, b)
		if len(parts) == 0 {
			return out
		}
	}
}

// parts splits peers with very many addresses.
func (c wireguardChanges) parts() (out []peerChange) {
	for _, p := range c.peers {
		all := p.allowed
		for i, some := range slices.Collect(slices.Chunk(all, allowedPerMessage)) {
			p.allowed = some
			if i > 0 {
				p = peerChange{key: p.key, keepalive: -1, allowed: some}
			}
			out = append(out, p)
		}
		if len(all) == 0 {
			out = append(out, p)
		}
	}
	return out
}

func (p peerChange) append(b *buf) {
	b.bytes(unix.WGPEER_A_PUBLIC_KEY, p.key[:])
	var flags uint32
	if p.remove {
		flags |= unix.WGPEER_F_REMOVE_ME
	}
	if p.replace {
		flags |= unix.WGPEER_F_REPLACE_ALLOWEDIPS
	}
	if !p.add {
		flags |= unix.WGPEER_F_UPDATE_ONLY
	}
	b.u32(unix.WGPEER_A_FLAGS, flags)
	if p.endpoint.IsValid() {
		b.bytes(unix.WGPEER_A_ENDPOINT, appendSocketAddress(nil, p.endpoint))
	}
	if p.keepalive >= 0 {
		b.u16(unix.WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL, uint16(p.keepalive))
	}
	b.nest(unix.WGPEER_A_ALLOWEDIPS, func(n *buf) {
		for _, a := range p.allowed {
			n.nest(unix.NFTA_LIST_ELEM, func(n *buf) {
				n.u16(unix.WGALLOWEDIP_A_FAMILY, uint16(family(a.Addr())))
				n.addr(unix.WGALLOWEDIP_A_IPADDR, a.Addr())
				n.u8(unix.WGALLOWEDIP_A_CIDR_MASK, uint8(a.Bits()))
			})
		}
	})
}
