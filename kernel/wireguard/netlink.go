package wireguard

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// KernelDevice is a device of the kernel, reached over generic netlink: linux/wireguard.h, kernel 5.6.
type KernelDevice struct {
	Name string
}

const (
	genericVersion = 1

	allowedPerMessage = 256
	bytesPerMessage   = 16 << 10 // an attribute, here the list of peers, holds at most 64 KiB
)

// conn runs f with a socket and the message type of WireGuard.
func (l KernelDevice) conn(f func(c *netlink.Conn, family uint16) error) error {
	c, err := netlink.Dial(unix.NETLINK_GENERIC, make([]byte, netlink.BufferSize))
	if err != nil {
		return err
	}
	defer c.Close()
	family, err := c.FamilyID("wireguard")
	if err != nil {
		return err
	}
	return f(c, family)
}

// Get reads the device.
func (l KernelDevice) Get() (*Device, error) {
	d := &Device{Peers: map[Key]*Peer{}}
	err := l.conn(func(c *netlink.Conn, family uint16) error {
		body := netlink.GenericMessage(unix.WG_CMD_GET_DEVICE, genericVersion)
		body.String(unix.WGDEVICE_A_IFNAME, l.Name)
		msgs, err := c.Dump(netlink.Request{Type: family, Body: body})
		for _, m := range msgs {
			netlink.EachAttr(m[min(netlink.GenericHeaderSize, len(m)):], d.attr)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wg show %s: %w", l.Name, err)
	}
	return d, nil
}

func (d *Device) attr(typ uint16, v []byte) {
	switch typ {
	case unix.WGDEVICE_A_PRIVATE_KEY:
		copy(d.PrivateKey[:], v)
	case unix.WGDEVICE_A_LISTEN_PORT:
		d.ListenPort = int(netlink.Uint16(v))
	case unix.WGDEVICE_A_PEERS:
		netlink.EachAttr(v, func(_ uint16, p []byte) { d.peer(p) })
	}
}

// peer decodes a peer. The addresses of one peer may continue in the next message.
func (d *Device) peer(v []byte) {
	var key Key
	copy(key[:], netlink.Attr(v, unix.WGPEER_A_PUBLIC_KEY))
	p := d.Peers[key]
	if p == nil {
		p = &Peer{}
		d.Peers[key] = p
	}
	netlink.EachAttr(v, func(typ uint16, v []byte) {
		switch typ {
		case unix.WGPEER_A_ENDPOINT:
			p.endpoint = socketAddress(v)
		case unix.WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL:
			p.keepalive = int(netlink.Uint16(v))
		case unix.WGPEER_A_LAST_HANDSHAKE_TIME: // struct __kernel_timespec
			if len(v) >= 16 && (netlink.Uint64(v) != 0 || netlink.Uint64(v[8:]) != 0) {
				p.handshake = time.Unix(int64(netlink.Uint64(v)), int64(netlink.Uint64(v[8:])))
			}
		case unix.WGPEER_A_ALLOWEDIPS:
			netlink.EachAttr(v, func(_ uint16, a []byte) {
				ip := netlink.Addr(netlink.Attr(a, unix.WGALLOWEDIP_A_IPADDR))
				p.allowed = append(p.allowed, netip.PrefixFrom(ip, int(netlink.Uint8(netlink.Attr(a, unix.WGALLOWEDIP_A_CIDR_MASK)))))
			})
		}
	})
}

// socketAddress decodes struct sockaddr_in or sockaddr_in6.
func socketAddress(v []byte) netip.AddrPort {
	if len(v) < 8 {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(v[2:])
	if netlink.Uint16(v) == unix.AF_INET6 && len(v) >= 24 {
		return netip.AddrPortFrom(netlink.Addr(v[8:24]), port)
	}
	return netip.AddrPortFrom(netlink.Addr(v[4:8]), port)
}

func appendSocketAddress(b []byte, a netip.AddrPort) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(netlink.AddrFamily(a.Addr())))
	b = binary.BigEndian.AppendUint16(b, a.Port())
	if a.Addr().Is4() {
		b = append(b, a.Addr().AsSlice()...)
		return append(b, make([]byte, 8)...)
	}
	b = append(b, 0, 0, 0, 0) // flow
	b = append(b, a.Addr().AsSlice()...)
	return append(b, 0, 0, 0, 0) // scope
}

// Set applies changes to the device.
func (l KernelDevice) Set(c Changes) error {
	if c.Empty() {
		return nil
	}
	return l.conn(func(conn *netlink.Conn, family uint16) error {
		for _, body := range c.messages(l.Name) {
			r, err := conn.Do([]netlink.Request{{Type: family, Flags: unix.NLM_F_ACK, Body: body}})
			if err == nil {
				err = r[0].Err
			}
			if err != nil {
				return fmt.Errorf("wg set %s: %w", l.Name, err)
			}
		}
		return nil
	})
}

// messages returns the changes as messages of limited size.
func (c Changes) messages(name string) (out []netlink.Buffer) {
	head := func() netlink.Buffer {
		b := netlink.GenericMessage(unix.WG_CMD_SET_DEVICE, genericVersion)
		b.String(unix.WGDEVICE_A_IFNAME, name)
		return b
	}
	first := head()
	if c.private != nil {
		first.Bytes(unix.WGDEVICE_A_PRIVATE_KEY, c.private[:])
	}
	if c.port != 0 {
		first.Uint16(unix.WGDEVICE_A_LISTEN_PORT, uint16(c.port))
	}
	parts := c.parts()
	for b := first; ; b = head() {
		b.Nest(unix.WGDEVICE_A_PEERS, func(n *netlink.Buffer) {
			for len(parts) > 0 && len(*n) < bytesPerMessage {
				n.Nest(unix.NFTA_LIST_ELEM, parts[0].append)
				parts = parts[1:]
			}
		})
		out = append(out, b)
		if len(parts) == 0 {
			return out
		}
	}
}

// parts splits the changes of peers with very many addresses.
func (c Changes) parts() (out []PeerChange) {
	for _, p := range c.peers {
		all := p.allowed
		for i, some := range slices.Collect(slices.Chunk(all, allowedPerMessage)) {
			p.allowed = some
			if i > 0 {
				p = PeerChange{key: p.key, keepalive: -1, allowed: some}
			}
			out = append(out, p)
		}
		if len(all) == 0 {
			out = append(out, p)
		}
	}
	return out
}

func (p PeerChange) append(b *netlink.Buffer) {
	b.Bytes(unix.WGPEER_A_PUBLIC_KEY, p.key[:])
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
	b.Uint32(unix.WGPEER_A_FLAGS, flags)
	if p.endpoint.IsValid() {
		b.Bytes(unix.WGPEER_A_ENDPOINT, appendSocketAddress(nil, p.endpoint))
	}
	if p.keepalive >= 0 {
		b.Uint16(unix.WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL, uint16(p.keepalive))
	}
	b.Nest(unix.WGPEER_A_ALLOWEDIPS, func(n *netlink.Buffer) {
		for _, a := range p.allowed {
			n.Nest(unix.NFTA_LIST_ELEM, func(n *netlink.Buffer) {
				n.Uint16(unix.WGALLOWEDIP_A_FAMILY, uint16(netlink.AddrFamily(a.Addr())))
				n.Addr(unix.WGALLOWEDIP_A_IPADDR, a.Addr())
				n.Uint8(unix.WGALLOWEDIP_A_CIDR_MASK, uint8(a.Bits()))
			})
		}
	})
}
