package kernel

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Neigh is a permanent neighbour entry. Its protocol number needs kernel 5.0. Source: ip-neighbour(8).
type Neigh struct {
	base
	In   Side       `json:",omitzero"`
	Link string     `json:",omitzero"`
	IP   netip.Addr `json:",omitzero"`
	MAC  string     `json:",omitzero"`

	Proto byte `json:",omitzero"` // protocol of the creator; 0: Protocol
}

const ndaProtocol = 12 // linux/neighbour.h

func (n *Neigh) kind() string { return "neigh" }
func (n *Neigh) Side() Side   { return n.In }
func (n *Neigh) Shared() bool { return false }
func (n *Neigh) on() linkName { return linkName{n.In, n.Link} }

// phase returns finishing: the kernel forgets neighbours when the link's address is set to announce its addresses.
func (n *Neigh) phase() phase { return finishing }

func (n *Neigh) String() string {
	return "ip neigh add " + n.IP.String() + " lladdr " + n.MAC + " dev " + n.Link + " nud permanent"
}

// Message starts the body of a message about the neighbour: struct ndmsg, rtnetlink(7).
func (n *Neigh) Message(index int, state uint16) netlink.Buffer {
	b := netlink.Buffer{netlink.AddrFamily(n.IP), 0, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint16(b, state)
	b = append(b, 0, 0)
	b.Addr(unix.NDA_DST, n.IP)
	return b
}

// AddRequest returns the request that adds or replaces the entry. index is the link's.
func (n *Neigh) AddRequest(index int) netlink.Request {
	b := n.Message(index, unix.NUD_PERMANENT)
	b.Bytes(unix.NDA_LLADDR, macBytes(n.MAC))
	b.Uint8(ndaProtocol, cmp.Or(n.Proto, Protocol))
	return netlink.Request{Type: unix.RTM_NEWNEIGH, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: b}
}

func (n *Neigh) ensure(e *Engine) error {
	i, err := e.LinkIndex(n.In, n.Link)
	if err != nil {
		return err
	}
	return e.send(n, n.In, n.AddRequest(i), func(r netlink.Response) error {
		if r.Err == nil {
			e.noteCreated(n)
		}
		return r.Err
	})
}

func (n *Neigh) diff(e *Engine) ([]string, error) {
	i, err := e.LinkIndex(n.In, n.Link)
	if err != nil {
		return nil, err
	}
	resp, err := e.Request(n.In, netlink.Request{Type: unix.RTM_GETNEIGH, Flags: 0, Body: n.Message(i, 0)})
	if err != nil {
		return nil, err
	}
	if len(resp.Messages) == 0 || len(resp.Messages[0]) < unix.SizeofNdMsg {
		return nil, os.ErrNotExist
	}
	m := resp.Messages[0]
	attrs := m[unix.SizeofNdMsg:]
	d := unequal("lladdr", hwaddr.Format(netlink.Attr(attrs, unix.NDA_LLADDR)), n.MAC)
	d = append(d, unequal("proto", netlink.Uint8(netlink.Attr(attrs, ndaProtocol)), cmp.Or(n.Proto, Protocol))...)
	if netlink.Uint16(m[8:])&unix.NUD_PERMANENT == 0 {
		d = append(d, "is not permanent")
	}
	return d, nil
}

func (n *Neigh) remove(e *Engine) error {
	i, err := e.LinkIndex(n.In, n.Link)
	if err != nil {
		return err
	}
	_, err = e.Request(n.In, netlink.Request{Type: unix.RTM_DELNEIGH, Flags: 0, Body: n.Message(i, 0)})
	return err
}
