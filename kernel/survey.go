package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Survey is what a namespace has, for whoever explains it.
type Survey struct {
	Links  []*LinkInfo
	Addrs  []AddrInfo
	Routes []RouteInfo // of both families and every table
	Neighs []NeighInfo
	Rules  []RuleInfo
}

// AddrInfo is an address of a link.
type AddrInfo struct {
	Index     int // of the link
	Prefix    netip.Prefix
	Scope     byte // RT_SCOPE_*, rtnetlink(7)
	Tentative bool // not used before it is known to be alone on the link
	Duplicate bool // somebody else on the link has it: the kernel does not use it
}

// NeighInfo is an entry of a neighbour table.
type NeighInfo struct {
	Index int // of the link
	IP    netip.Addr
	MAC   string // "" if it is not known
	State uint16 // NUD_*, rtnetlink(7)
}

// Failed tells whether nobody answered for the neighbour.
func (n NeighInfo) Failed() bool { return n.State&unix.NUD_FAILED != 0 }

// Usable tells whether packets are sent to the neighbour's hardware address.
func (n NeighInfo) Usable() bool {
	return n.State&(unix.NUD_REACHABLE|unix.NUD_PERMANENT|unix.NUD_STALE|unix.NUD_DELAY|unix.NUD_PROBE|unix.NUD_NOARP) != 0
}

// Survey looks at everything of a side at once.
func (e *Engine) Survey(s Side) (*Survey, error) {
	out := &Survey{}
	var err error
	if out.Links, err = e.Links(s); err != nil {
		return nil, err
	}
	if out.Addrs, err = e.addrInfos(s, 0); err != nil {
		return nil, err
	}
	if out.Neighs, err = e.neighs(s); err != nil {
		return nil, err
	}
	for _, fam := range []byte{IPv4, IPv6} {
		routes, err := e.Routes(s, fam, 0)
		if err != nil {
			return nil, err
		}
		rules, err := e.Rules(s, fam)
		if err != nil {
			return nil, err
		}
		out.Routes, out.Rules = append(out.Routes, routes...), append(out.Rules, rules...)
	}
	return out, nil
}

// addrInfos lists the addresses of a link, or with 0 of all links.
func (e *Engine) addrInfos(s Side, index int) (out []AddrInfo, _ error) {
	msgs, err := e.dump(s, netlink.Request{Type: unix.RTM_GETADDR, Body: binary.NativeEndian.AppendUint32(netlink.Buffer{0, 0, 0, 0}, uint32(index))})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		if len(m) < unix.SizeofIfAddrmsg || index != 0 && int(netlink.Uint32(m[4:])) != index {
			continue
		}
		flags := uint32(m[2])
		if f := netlink.Attr(m[unix.SizeofIfAddrmsg:], unix.IFA_FLAGS); len(f) == 4 {
			flags = netlink.Uint32(f)
		}
		out = append(out, AddrInfo{
			Index: int(netlink.Uint32(m[4:])), Prefix: netip.PrefixFrom(netlink.LocalAddr(m), int(m[1])), Scope: m[3],
			Tentative: flags&unix.IFA_F_TENTATIVE != 0, Duplicate: flags&unix.IFA_F_DADFAILED != 0,
		})
	}
	return out, nil
}

func (e *Engine) neighs(s Side) (out []NeighInfo, _ error) {
	msgs, err := e.dump(s, netlink.Request{Type: unix.RTM_GETNEIGH, Body: make(netlink.Buffer, unix.SizeofNdMsg)})
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

// The states of a bridge port, linux/if_bridge.h.
const (
	PortNone       = -1 // the link is no port
	PortForwarding = 3
)

// PortState is the state of a bridge port.
func (l *LinkInfo) PortState() int {
	if v := netlink.Attr(l.port, brportState); len(v) > 0 {
		return int(v[0])
	}
	return PortNone
}

// Isolated tells whether a bridge port talks to ports that are not isolated only.
func (l *LinkInfo) Isolated() bool {
	return netlink.Uint8(netlink.Attr(l.port, unix.IFLA_BRPORT_ISOLATED)) != 0
}

// Hairpin tells whether frames may leave a bridge port that they came by.
func (l *LinkInfo) Hairpin() bool {
	return netlink.Uint8(netlink.Attr(l.port, unix.IFLA_BRPORT_MODE)) != 0
}

// Path is the number of the host's link by which a packet of a container leaves
// that came in by a link; an error says why it does not.
func (e *Engine) Path(to, from netip.Addr, in int) (int, error) {
	m, err := e.routeTo(Host, to, func(b *netlink.Buffer) {
		(*b)[2] = byte(from.BitLen())
		b.Addr(unix.RTA_SRC, from)
		b.Uint32(unix.RTA_IIF, uint32(in))
	})
	if err != nil {
		return 0, err
	}
	return parseRoute(m).Index, nil
}

// Listens tells whether somebody has a UDP socket on a port of a side.
// Source: proc_net(5).
func (e *Engine) Listens(s Side, port uint16) (yes bool) {
	_ = e.inside(s, func() error {
		for _, file := range []string{"udp", "udp6"} {
			raw, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				continue
			}
			for l := range strings.Lines(string(raw)) {
				f := strings.Fields(l)
				yes = yes || len(f) > 1 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port))
			}
		}
		return nil
	})
	return yes
}

// Kind is the name of an object's kind, as a record has it.
func Kind(o Object) string { return o.kind() }
