package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/hwaddr"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// FDB is a permanent forwarding entry of a VXLAN device: it sends frames for a hardware address to a host. Source:
// bridge(8), "bridge fdb".
type FDB struct {
	base
	In   Side       `json:",omitzero"`
	Link string     `json:",omitzero"`
	MAC  string     `json:",omitzero"`
	Dst  netip.Addr `json:",omitzero"`
}

func (f *FDB) kind() string { return "fdb" }
func (f *FDB) Side() Side   { return f.In }
func (f *FDB) Shared() bool { return false }
func (f *FDB) on() linkName { return linkName{f.In, f.Link} }

func (f *FDB) String() string {
	return "bridge fdb replace " + f.MAC + " dev " + f.Link + " dst " + f.Dst.String() + " self permanent"
}

// Message returns the body of a message about the entry: struct ndmsg of AF_BRIDGE, rtnetlink(7).
func (f *FDB) Message(index int) netlink.Buffer {
	b := netlink.Buffer{unix.AF_BRIDGE, 0, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint16(b, unix.NUD_PERMANENT|unix.NUD_NOARP)
	b = append(b, unix.NTF_SELF, 0)
	b.Bytes(unix.NDA_LLADDR, macBytes(f.MAC))
	b.Addr(unix.NDA_DST, f.Dst)
	return b
}

// AddRequest returns the request that adds or replaces the entry. index is the link's.
func (f *FDB) AddRequest(index int) netlink.Request {
	return netlink.Request{Type: unix.RTM_NEWNEIGH, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: f.Message(index)}
}

func (f *FDB) ensure(e *Engine) error {
	i, err := e.LinkIndex(f.In, f.Link)
	if err != nil {
		return err
	}
	return e.send(f, f.In, f.AddRequest(i), func(r netlink.Response) error {
		if r.Err == nil {
			e.noteCreated(f)
		}
		return r.Err
	})
}

func (f *FDB) diff(e *Engine) ([]string, error) {
	i, err := e.LinkIndex(f.In, f.Link)
	if err != nil {
		return nil, err
	}
	have, err := e.ForwardingEntries(f.In, i)
	if err != nil {
		return nil, err
	}
	dst, ok := have[f.MAC]
	switch {
	case !ok:
		return nil, os.ErrNotExist
	case dst != f.Dst:
		return []string{fmt.Sprintf("dst is %s, want %s", dst, f.Dst)}, nil
	}
	return nil, nil
}

func (f *FDB) remove(e *Engine) error {
	i, err := e.LinkIndex(f.In, f.Link)
	if err != nil {
		return err
	}
	_, err = e.Request(f.In, netlink.Request{Type: unix.RTM_DELNEIGH, Flags: 0, Body: f.Message(i)})
	return err
}

// ForwardingEntries lists the forwarding entries of a VXLAN device by hardware address. The all-zero address is the
// default for unknown destinations.
func (e *Engine) ForwardingEntries(s Side, index int) (map[string]netip.Addr, error) {
	b := netlink.Buffer{unix.AF_BRIDGE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	b.Uint32(unix.NDA_IFINDEX, uint32(index))
	msgs, err := e.Dump(s, netlink.Request{Type: unix.RTM_GETNEIGH, Body: b})
	if err != nil {
		return nil, fmt.Errorf("list forwarding entries: %w", err)
	}
	out := map[string]netip.Addr{}
	for _, m := range msgs {
		if len(m) >= unix.SizeofNdMsg && int(netlink.Uint32(m[4:])) == index {
			p := m[unix.SizeofNdMsg:]
			out[hwaddr.Format(netlink.Attr(p, unix.NDA_LLADDR))] = netlink.Addr(netlink.Attr(p, unix.NDA_DST))
		}
	}
	return out, nil
}
