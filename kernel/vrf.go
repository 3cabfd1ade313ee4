package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// VRF is a virtual router of the container: the routes of its member links are in its own table. The first member
// creates it, and the last one removes it. Source: the kernel's Documentation/networking/vrf.rst.
type VRF struct {
	base         // returns no link to SplitLinks: the VRF may go only after its member
	Name  string `json:",omitzero"`
	Table int    `json:",omitzero"`
}

const (
	iflaVRFTable = 1                 // linux/if_link.h
	vrfTag       = TagPrefix + "vrf" // alias of a VRF that the last member removes
)

func (v *VRF) kind() string { return "vrf" }
func (v *VRF) Side() Side   { return Container }
func (v *VRF) Shared() bool { return false }

func (v *VRF) String() string {
	return fmt.Sprintf("ip link add %s up type vrf table %d", v.Name, v.Table)
}

func (v *VRF) ensure(e *Engine) error {
	if l, err := e.Link(Container, v.Name); err == nil {
		switch d := v.differs(l); {
		case len(d) == 0:
			return nil
		case v.fits(l):
			return v.setUp(e, l)
		default:
			return fmt.Errorf("%s exists and %s", v.Name, d[0])
		}
	}
	birth := netlink.LinkMessage(0, unix.IFF_UP, unix.IFF_UP)
	birth.String(unix.IFLA_IFNAME, v.Name)
	birth.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, "vrf")
		n.Nest(unix.IFLA_INFO_DATA, func(n *netlink.Buffer) { n.Uint32(iflaVRFTable, uint32(v.Table)) })
	})
	err := e.send(v, Container, netlink.Request{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: birth}, func(r netlink.Response) error {
		if errors.Is(r.Err, unix.EOPNOTSUPP) {
			return fmt.Errorf("the kernel lacks VRF devices (module vrf): %w", r.Err)
		}
		if r.Err == nil {
			e.noteCreated(v)
		}
		return r.Err
	})
	if err != nil {
		return err
	}
	return e.send(v, Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: alias(v.Name, vrfTag)}, nil)
}

// fits reports whether the link is this VRF, up or down.
func (v *VRF) fits(l *LinkInfo) bool { return l.Kind == "vrf" && l.VRFTable() == v.Table }

func (v *VRF) setUp(e *Engine, l *LinkInfo) error {
	return e.send(v, Container, netlink.Request{Type: unix.RTM_NEWLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, unix.IFF_UP, unix.IFF_UP)}, nil)
}

func (v *VRF) differs(l *LinkInfo) []string {
	switch {
	case l.Kind != "vrf":
		return []string{"is not of type vrf but " + describeKind(l)}
	case l.VRFTable() != v.Table:
		return []string{fmt.Sprintf("has table %d, want %d", l.VRFTable(), v.Table)}
	case !l.Up:
		return []string{"is down"}
	}
	return nil
}

func (v *VRF) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Container, v.Name)
	if err != nil {
		return nil, err
	}
	return v.differs(l), nil
}

// restore creates the VRF. It replaces a VRF of Fairlead that has another table, because the kernel cannot change it.
func (v *VRF) restore(e *Engine) error {
	l, err := e.Link(Container, v.Name)
	if err == nil && l.Kind == "vrf" && l.Alias == vrfTag && l.VRFTable() != v.Table {
		if err := e.releaseMembers(l); err != nil {
			return err
		}
		delete(e.index[Container], v.Name)
		if _, err := e.Request(Container, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)}); err != nil {
			return err
		}
		return v.ensure(e)
	}
	if err == nil && v.fits(l) {
		return v.setUp(e, l)
	}
	return v.ensure(e)
}

// releaseMembers takes all links out of a VRF. They keep their addresses and routes.
func (e *Engine) releaseMembers(vrf *LinkInfo) error {
	all, err := e.Links(Container)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Master == vrf.Index {
			if err := e.enslave(m, 0, vrf.VRFTable(), unix.RT_TABLE_MAIN); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes a VRF that Fairlead created, unless it still has members.
func (v *VRF) remove(e *Engine) error {
	l, err := e.Link(Container, v.Name)
	if err != nil || l.Kind != "vrf" || l.Alias != vrfTag {
		return err
	}
	all, err := e.Links(Container)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Master == l.Index {
			return nil
		}
	}
	delete(e.index[Container], v.Name)
	_, err = e.Request(Container, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)})
	return err
}

// VRFTable returns the table of a VRF, or 0 for another link.
func (l *LinkInfo) VRFTable() int {
	if l.Kind != "vrf" {
		return 0
	}
	return int(netlink.Uint32(netlink.Attr(l.data, iflaVRFTable)))
}

// VRFMember is a link's membership in a VRF. The kernel takes a link down and up when its master changes. The link then
// gets its addresses and routes back, and its routes move from the old table to the new one.
type VRFMember struct {
	base
	Link string `json:",omitzero"`
	VRF  string `json:",omitzero"`
}

func (m *VRFMember) changesEarlier() {}
func (m *VRFMember) kind() string    { return "member" }
func (m *VRFMember) Side() Side      { return Container }
func (m *VRFMember) Shared() bool    { return false }
func (m *VRFMember) on() linkName    { return linkName{} } // the link must leave before the VRF goes
func (m *VRFMember) String() string  { return "ip link set " + m.Link + " master " + m.VRF }

func (m *VRFMember) ensure(e *Engine) error {
	if err := e.flush(); err != nil {
		return err
	}
	router, err := e.Link(Container, m.VRF)
	if err != nil {
		return err
	}
	l, err := e.Link(Container, m.Link)
	if err != nil {
		return err
	}
	if l.Master == router.Index {
		return nil
	}
	if l.Master != 0 {
		return fmt.Errorf("%s has another master already: %w", m.Link, unix.EBUSY)
	}
	c, err := e.saveLinkState(l.Index)
	if err != nil {
		return err
	}
	e.noteCreated(m)
	if err := e.setMaster(l, router.Index, c, unix.RT_TABLE_MAIN, router.VRFTable()); err != nil {
		// The link leaves again with all that it had. remove would preserve only what the link has in the VRF.
		return errors.Join(err, e.setMaster(l, 0, c, unix.RT_TABLE_MAIN, unix.RT_TABLE_MAIN))
	}
	return nil
}

// enslave changes the master of a container's link; 0 means none.
func (e *Engine) enslave(l *LinkInfo, master, from, to int) error {
	c, err := e.saveLinkState(l.Index)
	if err != nil {
		return err
	}
	return e.setMaster(l, master, c, from, to)
}

// setMaster changes the master of a link and restores the link's state, with the routes of one table in another.
func (e *Engine) setMaster(l *LinkInfo, master int, c linkState, from, to int) error {
	body := netlink.LinkMessage(l.Index, 0, 0)
	body.Uint32(unix.IFLA_MASTER, uint32(master))
	return e.changeAndRestore(netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, c, from, to)
}

func (m *VRFMember) diff(e *Engine) (d []string, err error) {
	vrf, err := e.LinkIndex(Container, m.VRF)
	if err != nil {
		return nil, err
	}
	l, err := e.Link(Container, m.Link)
	if err != nil {
		return nil, err
	}
	if l.Master != vrf {
		return []string{"is not in " + m.VRF}, nil
	}
	return nil, nil
}

// restore moves the link into the VRF, also from another one.
func (m *VRFMember) restore(e *Engine) error {
	l, err := e.Link(Container, m.Link)
	if err != nil {
		return err
	}
	from := unix.RT_TABLE_MAIN
	if l.Master != 0 {
		other, err := e.LinkByIndex(Container, l.Master)
		if err != nil {
			return err
		}
		if from = other.VRFTable(); from == 0 {
			return fmt.Errorf("%s has another master, %s: %w", m.Link, other.Name, unix.EBUSY)
		}
	}
	router, err := e.Link(Container, m.VRF)
	if err != nil {
		return err
	}
	return e.enslave(l, router.Index, from, router.VRFTable())
}

func (m *VRFMember) remove(e *Engine) error {
	l, err := e.Link(Container, m.Link)
	if err != nil {
		return err
	}
	router, err := e.Link(Container, m.VRF)
	if err != nil || l.Master != router.Index {
		return err
	}
	if err := e.enslave(l, 0, router.VRFTable(), unix.RT_TABLE_MAIN); !refusesFormer(err) {
		return err
	}
	return nil
}
