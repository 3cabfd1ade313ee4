package kernel

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/netlink"
	"golang.org/x/sys/unix"
)

// NeighInfo is an entry of a neighbour table.
type NeighInfo struct {
	Index int // of the link
	IP    netip.Addr
	MAC   string // "" if unknown
	State uint16 // NUD_*, rtnetlink(7)
}

// Failed reports whether the neighbour did not answer.
func (n NeighInfo) Failed() bool { return n.State&unix.NUD_FAILED != 0 }

// Usable reports whether the kernel sends packets to the neighbour's hardware address.
func (n NeighInfo) Usable() bool {
	return n.State&(unix.NUD_REACHABLE|unix.NUD_PERMANENT|unix.NUD_STALE|unix.NUD_DELAY|unix.NUD_PROBE|unix.NUD_NOARP) != 0
}

// Neighs lists the neighbour table.
func (e *Engine) Neighs(s Side) (out []NeighInfo, _ error) {
	msgs, err := e.Dump(s, netlink.Request{Type: unix.RTM_GETNEIGH, Body: make(netlink.Buffer, unix.SizeofNdMsg)})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	for _, m := range msgs {
		if len(m) < unix.SizeofNdMsg || m[0] != IPv4 && m[0] != IPv6 {
			continue
		}
		n := NeighInfo{Index: int(netlink.Uint32(m[4:])), State: netlink.Uint16(m[8:])}
		n.IP = netlink.Addr(netlink.Attr(m[unix.SizeofNdMsg:], unix.NDA_DST))
		if mac := netlink.Attr(m[unix.SizeofNdMsg:], unix.NDA_LLADDR); len(mac) == 6 {
			n.MAC = hwaddr.Format(mac)
		}
		out = append(out, n)
	}
	return out, nil
}

// PermanentNeighs returns the hardware addresses of a link's permanent neighbours.
func (e *Engine) PermanentNeighs(s Side, fam byte, index int) (map[netip.Addr]string, error) {
	b := netlink.Buffer{fam, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b.Uint32(unix.NDA_IFINDEX, uint32(index))
	msgs, err := e.Dump(s, netlink.Request{Type: unix.RTM_GETNEIGH, Body: b})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	out := map[netip.Addr]string{}
	for _, m := range msgs {
		if len(m) >= unix.SizeofNdMsg && int(netlink.Uint32(m[4:])) == index && netlink.Uint16(m[8:])&unix.NUD_PERMANENT != 0 {
			p := m[unix.SizeofNdMsg:]
			out[netlink.Addr(netlink.Attr(p, unix.NDA_DST))] = hwaddr.Format(netlink.Attr(p, unix.NDA_LLADDR))
		}
	}
	return out, nil
}
