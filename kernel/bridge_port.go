package kernel

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/kernel/netlink"
	"golang.org/x/sys/unix"
)

// Port is the configuration of a bridge port. Source: bridge(8).
type Port struct {
	base
	Link     string `json:",omitzero"`
	Hairpin  bool   `json:",omitzero"`
	Isolated bool   `json:",omitzero"` // sends only to ports that are not isolated; kernel 4.18
}

func (p *Port) kind() string { return "port" }
func (p *Port) Side() Side   { return Host }
func (p *Port) Shared() bool { return false }
func (p *Port) on() linkName { return linkName{Host, p.Link} }

func (p *Port) String() string {
	s := "bridge link set dev " + p.Link
	if p.Hairpin {
		s += " hairpin on"
	}
	if p.Isolated {
		s += " isolated on"
	}
	return s
}

func (p *Port) ensure(e *Engine) error {
	i, err := e.LinkIndex(Host, p.Link)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, 0, 0)
	body[0] = unix.AF_BRIDGE
	body.Nest(unix.IFLA_PROTINFO, func(n *netlink.Buffer) {
		n.Uint8(unix.IFLA_BRPORT_MODE, flag(p.Hairpin))
		n.Uint8(unix.IFLA_BRPORT_ISOLATED, flag(p.Isolated))
	})
	return e.send(p, Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

func (p *Port) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Host, p.Link)
	if err != nil {
		return nil, err
	}
	return append(unequal("hairpin", onOff(l.Hairpin()), onOff(p.Hairpin)), unequal("isolated", onOff(l.Isolated()), onOff(p.Isolated))...), nil
}

func (p *Port) remove(*Engine) error { return nil }

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// PortVLAN is a range of VLANs on a bridge port, or on the bridge itself.
type PortVLAN struct {
	base
	Link     string `json:",omitzero"`
	First    int    `json:",omitzero"` // 1 to 4094
	Last     int    `json:",omitzero"`
	PVID     bool   `json:",omitzero"` // VLAN of untagged frames
	Untagged bool   `json:",omitzero"` // frames leave without a tag
	Delete   bool   `json:",omitzero"` // the VLAN must not exist, for example the default one
	IsShared bool   `json:",omitzero"`

	changed []*PortVLAN // later objects that set VLANs of the range
}

const ( // linux/if_bridge.h
	bridgeVLANInfo = 2
	rtextBRVLANs   = 1 << 2 // linux/rtnetlink.h: RTEXT_FILTER_BRVLAN_COMPRESSED

	vlanPVID       = 1 << 1
	vlanUntagged   = 1 << 2
	vlanRangeBegin = 1 << 3
	vlanRangeEnd   = 1 << 4
)

func (v *PortVLAN) kind() string { return "vlan" }
func (v *PortVLAN) Side() Side   { return Host }
func (v *PortVLAN) Shared() bool { return v.IsShared }
func (v *PortVLAN) on() linkName { return linkName{Host, v.Link} }

func (v *PortVLAN) String() string {
	verb := "add"
	if v.Delete {
		verb = "delete"
	}
	s := fmt.Sprintf("bridge vlan %s dev %s vid %d", verb, v.Link, v.First)
	if v.Last != v.First {
		s += fmt.Sprintf("-%d", v.Last)
	}
	if v.PVID {
		s += " pvid"
	}
	if v.Untagged {
		s += " untagged"
	}
	return s
}

func (v *PortVLAN) ensure(e *Engine) error {
	i, err := e.LinkIndex(Host, v.Link)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, 0, 0)
	body[0] = unix.AF_BRIDGE
	body.Nest(unix.IFLA_AF_SPEC, func(n *netlink.Buffer) {
		for _, r := range v.infos() {
			n.Bytes(bridgeVLANInfo, r)
		}
	})
	if v.Delete {
		return e.send(v, Host, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: body}, ignoreAbsent)
	}
	return e.send(v, Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

func ignoreAbsent(r netlink.Response) error {
	if netlink.IsAbsent(r.Err) {
		return nil
	}
	return r.Err
}

// infos returns struct bridge_vlan_info: one, or two for the ends of a range.
func (v *PortVLAN) infos() [][]byte {
	var flags uint16
	if v.PVID {
		flags |= vlanPVID
	}
	if v.Untagged {
		flags |= vlanUntagged
	}
	info := func(flags uint16, vid int) []byte {
		return binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, flags), uint16(vid))
	}
	if v.First == v.Last {
		return [][]byte{info(flags, v.First)}
	}
	return [][]byte{
		info(flags|vlanRangeBegin, v.First),
		info(flags|vlanRangeEnd, v.Last),
	}
}

func (v *PortVLAN) diff(e *Engine) ([]string, error) {
	have, err := e.portVLANs(v.Link)
	if err != nil {
		return nil, err
	}
	var d []string
	for vid := v.First; vid <= v.Last; vid++ {
		flags, ok := have[vid]
		switch {
		case v.setLater(vid):
		case ok == v.Delete && v.Delete:
			d = append(d, fmt.Sprintf("VLAN %d still exists", vid))
		case v.Delete:
		case !ok:
			d = append(d, fmt.Sprintf("VLAN %d is missing", vid))
		default:
			d = append(d, unequal(fmt.Sprintf("pvid of VLAN %d", vid), onOff(flags&vlanPVID != 0), onOff(v.PVID))...)
			d = append(d, unequal(fmt.Sprintf("untagged of VLAN %d", vid), onOff(flags&vlanUntagged != 0), onOff(v.Untagged))...)
		}
	}
	return d, nil
}

func (v *PortVLAN) changesEarlier() {}

// without returns the VLANs that no later object sets in another way.
func (v *PortVLAN) without(later Object) Object {
	l, ok := later.(*PortVLAN)
	switch {
	case !ok || l.Link != v.Link || l.Last < v.First || v.Last < l.First:
		return v
	case l.First <= v.First && v.Last <= l.Last:
		return nil
	}
	c := *v
	c.changed = append(slices.Clone(v.changed), l)
	return &c
}

// setLater reports whether a later object sets a VLAN of the range.
func (v *PortVLAN) setLater(vid int) bool {
	return slices.ContainsFunc(v.changed, func(l *PortVLAN) bool { return l.First <= vid && vid <= l.Last })
}

// portVLANs returns the VLANs of a port with their flags.
func (e *Engine) portVLANs(link string) (map[int]uint16, error) {
	i, err := e.LinkIndex(Host, link)
	if err != nil {
		return nil, err
	}
	all, err := readOnce(e, "VLANs", e.listVLANs)
	return all[i], err
}

// listVLANs returns the VLANs of all ports of the host by the index of the link.
func (e *Engine) listVLANs() (map[int]map[int]uint16, error) {
	body := netlink.LinkMessage(0, 0, 0)
	body[0] = unix.AF_BRIDGE
	body.Uint32(unix.IFLA_EXT_MASK, rtextBRVLANs) // as ranges: a port's list of nearly all VLANs would be too large
	msgs, err := e.Dump(Host, netlink.Request{Type: unix.RTM_GETLINK, Body: body})
	if err != nil {
		return nil, err
	}
	out := map[int]map[int]uint16{}
	for _, m := range msgs {
		if len(m) < unix.SizeofIfInfomsg {
			continue
		}
		out[int(netlink.Uint32(m[4:]))] = parseVLANs(netlink.Attr(m[unix.SizeofIfInfomsg:], unix.IFLA_AF_SPEC))
	}
	return out, nil
}

// parseVLANs decodes IFLA_AF_SPEC of a bridge port: single VLANs, and the two ends of each range.
func parseVLANs(p []byte) map[int]uint16 {
	out := map[int]uint16{}
	first := 0
	netlink.EachAttr(p, func(t uint16, info []byte) {
		if t != bridgeVLANInfo || len(info) < 4 {
			return
		}
		flags, vid := netlink.Uint16(info), int(netlink.Uint16(info[2:]))
		if flags&vlanRangeEnd == 0 {
			first = vid
		}
		for v := first; v <= vid; v++ {
			out[v] = flags &^ (vlanRangeBegin | vlanRangeEnd)
		}
	})
	return out
}

func (v *PortVLAN) remove(*Engine) error { return nil }
