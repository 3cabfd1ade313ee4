package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// VRF is a virtual router of the container: a link whose members' routes are in
// a table of its own. It is made by its first member and goes with its last.
// Source: the kernel's Documentation/networking/vrf.rst.
type VRF struct {
	base         // no link of its own to Split: it may go only after its member left
	Name  string `json:",omitzero"`
	Table int    `json:",omitzero"`
}

const (
	iflaVRFTable = 1                  // linux/if_link.h
	vrfMark      = markPrefix + "vrf" // alias of those that go with their last member
)

func (v *VRF) kind() string { return "vrf" }
func (v *VRF) Side() Side   { return Container }
func (v *VRF) Shared() bool { return false }

func (v *VRF) String() string {
	return fmt.Sprintf("ip link add %s up type vrf table %d", v.Name, v.Table)
}

func (v *VRF) ensure(e *Engine) error {
	if l, err := e.Link(Container, v.Name); err == nil {
		if d := v.differs(l); len(d) > 0 {
			return fmt.Errorf("%s exists and %s", v.Name, d[0])
		}
		return nil
	}
	birth := ifinfo(0, unix.IFF_UP, unix.IFF_UP)
	birth.str(unix.IFLA_IFNAME, v.Name)
	birth.nest(unix.IFLA_LINKINFO, func(n *buf) {
		n.str(unix.IFLA_INFO_KIND, "vrf")
		n.nest(unix.IFLA_INFO_DATA, func(n *buf) { n.u32(iflaVRFTable, uint32(v.Table)) })
	})
	err := e.send(v, Container, request{unix.RTM_NEWLINK, unix.NLM_F_CREATE | unix.NLM_F_EXCL, birth}, func(r response) error {
		if errors.Is(r.err, unix.EOPNOTSUPP) {
			return fmt.Errorf("the kernel has no virtual routers (module vrf): %w", r.err)
		}
		if r.err == nil {
			e.made(v)
		}
		return r.err
	})
	if err != nil {
		return err
	}
	return e.send(v, Container, request{unix.RTM_SETLINK, 0, alias(v.Name, vrfMark)}, nil)
}

func (v *VRF) differs(l *LinkInfo) []string {
	switch {
	case l.Kind != "vrf":
		return []string{"is no vrf but " + kindWords(l)}
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

// remove deletes one that Fairlead made, if it has no member left.
func (v *VRF) remove(e *Engine) error {
	l, err := e.Link(Container, v.Name)
	if err != nil || l.Kind != "vrf" || l.Alias != vrfMark {
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
	_, err = e.now(Container, request{unix.RTM_DELLINK, 0, ifinfo(l.Index, 0, 0)})
	return err
}

// VRFTable is the table of a virtual router, 0 of another link.
func (l *LinkInfo) VRFTable() int {
	if l.Kind != "vrf" {
		return 0
	}
	return int(num32(attr(l.data, iflaVRFTable)))
}

// Member is a link of the container in a virtual router. The kernel takes a link
// down and up when it changes masters; what it loses by that it gets back, its
// routes of the table that it leaves in the one that it comes to.
type Member struct {
	base
	Link string `json:",omitzero"`
	VRF  string `json:",omitzero"`
}

func (m *Member) kind() string   { return "member" }
func (m *Member) Side() Side     { return Container }
func (m *Member) Shared() bool   { return false }
func (m *Member) on() linkName   { return linkName{} } // it leaves before the router may go
func (m *Member) String() string { return "ip link set " + m.Link + " master " + m.VRF }

func (m *Member) ensure(e *Engine) error {
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
	e.made(m)
	return e.enslave(l, router.Index, unix.RT_TABLE_MAIN, router.VRFTable())
}

// enslave gives a link of the container another master, 0 for none.
func (e *Engine) enslave(l *LinkInfo, master, from, to int) error {
	c, err := e.carry(l.Index)
	if err != nil {
		return err
	}
	body := ifinfo(l.Index, 0, 0)
	body.u32(unix.IFLA_MASTER, uint32(master))
	return e.moveAnd(request{unix.RTM_SETLINK, 0, body}, c, from, to)
}

func (m *Member) diff(e *Engine) (d []string, err error) {
	vrf, err := e.ifindex(Container, m.VRF)
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

func (m *Member) remove(e *Engine) error {
	l, err := e.Link(Container, m.Link)
	if err != nil {
		return err
	}
	router, err := e.Link(Container, m.VRF)
	if err != nil || l.Master != router.Index {
		return err
	}
	return e.enslave(l, 0, router.VRFTable(), unix.RT_TABLE_MAIN)
}
