package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// StackedLink is a VLAN, MACVLAN or IPVLAN link of the container on top of a parent link. It is created in the
// container's namespace, down (see Up), under its final name if the kernel allows that.
type StackedLink struct {
	base
	Type       string `json:",omitzero"` // "macvlan", "ipvlan", "vlan"
	Name       string `json:",omitzero"`
	Parent     string `json:",omitzero"`
	ParentSide Side   `json:",omitzero"`
	MAC        string `json:",omitzero"`     // "": the parent's, or a random one for macvlan
	MTU        int    `json:",omitzero"`     // bytes; 0: the parent's
	Mode       string `json:",omitzero"`     // a name of StackedLinkModes; vlan has none
	QueueLen   int    `json:",omitzero"`     // macvlan: broadcast frames that may wait; 0: the kernel's 1000
	VLAN       int    `json:",omitzero"`     // vlan: the ID; 0 is priority-tagged frames
	OwnerTag   string `json:"Mark,omitzero"` // alias

	changed LinkSettings // what a later plugin sets
}

// StackedLinkModes returns the modes of a type by their names in ip-link(8), with the kernel's numbers,
// linux/if_link.h.
func StackedLinkModes(typ string) map[string]uint32 {
	switch typ {
	case "macvlan":
		return map[string]uint32{"private": 1, "vepa": 2, "bridge": 4, "passthru": 8}
	case "ipvlan":
		return map[string]uint32{"l2": 0, "l3": 1, "l3s": 2}
	}
	return nil
}

const ( // linux/if_link.h: IFLA_INFO_DATA of each type
	macvlanMode     = 1
	macvlanQueueLen = 7 // kernel 5.11
	ipvlanMode      = 1
	vlanID          = 1
)

func (s *StackedLink) kind() string      { return "sub" }
func (s *StackedLink) Side() Side        { return Container }
func (s *StackedLink) Shared() bool      { return false }
func (s *StackedLink) links() []linkName { return []linkName{{Container, s.Name}} }

func (s *StackedLink) String() string {
	t := "ip link add link " + s.Parent + " name " + s.Name
	if s.ParentSide == Host {
		t = "ip link add link " + s.Parent + " of the host name " + s.Name
	}
	if s.MAC != "" {
		t += " address " + s.MAC
	}
	if s.MTU > 0 {
		t += " mtu " + strconv.Itoa(s.MTU)
	}
	t += " type " + s.Type
	if s.Type == "vlan" {
		t += " id " + strconv.Itoa(s.VLAN)
	} else {
		t += " mode " + s.Mode
	}
	if s.QueueLen > 0 {
		t += " bcqueuelen " + strconv.Itoa(s.QueueLen)
	}
	return t
}

func (s *StackedLink) ensure(e *Engine) error {
	name := s.Name
	err := s.createAs(e, name)
	if errors.Is(err, unix.EEXIST) && s.onlyHostHas(e) {
		name = s.temporaryName()
		err = s.createAs(e, name)
	}
	if errors.Is(err, unix.EEXIST) && s.Type == "vlan" {
		err = s.awaitVLAN(e, name, err)
	}
	if err != nil {
		return s.explain(err)
	}
	e.noteCreated(s)
	if name != s.Name {
		return s.rename(e, name)
	}
	// A kill before the next request leaves a link without an owner tag. remove recognises it by its name, its type and
	// the empty alias.
	return e.send(s, Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: alias(s.Name, s.OwnerTag)}, nil)
}

// createAs creates the link under a name.
func (s *StackedLink) createAs(e *Engine, name string) error {
	create, err := s.createRequest(e, name)
	if err == nil {
		_, err = e.Request(s.ParentSide, create)
	}
	return err
}

// onlyHostHas reports whether the host has a link of the name, and the container has none. Before version 6.15, the
// kernel then refuses to create the link: it looks for the name in the namespace of the request.
func (s *StackedLink) onlyHostHas(e *Engine) bool {
	_, taken := e.Link(Host, s.Name)
	_, free := e.Link(Container, s.Name)
	return s.ParentSide == Host && taken == nil && errors.Is(free, os.ErrNotExist)
}

func (s *StackedLink) temporaryName() string {
	return Owner{Network: s.OwnerTag, IfName: s.Name}.LinkName("fl")
}

// rename gives the link its name and its owner tag.
func (s *StackedLink) rename(e *Engine, from string) error {
	i, err := e.LinkIndex(Container, from)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, 0, 0)
	body.String(unix.IFLA_IFNAME, s.Name)
	body.Bytes(unix.IFLA_IFALIAS, []byte(s.OwnerTag))
	if _, err = e.Request(Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}); err != nil {
		return errors.Join(err, e.deleteInside(from, s.Type, s.OwnerTag))
	}
	delete(e.index[Container], from)
	return nil
}

// awaitVLAN handles the reply that a link of the name, or of the VLAN, exists. It waits while the VLAN's link ends.
func (s *StackedLink) awaitVLAN(e *Engine, name string, exists error) error {
	if _, err := e.Link(Container, name); !errors.Is(err, os.ErrNotExist) {
		return exists
	}
	if l := s.sameVLAN(e); l != nil {
		return fmt.Errorf("another link of %s has VLAN %d: interface %s of the %s: %w", s.Parent, s.VLAN, l.Name, s.ParentSide, exists)
	}
	create, err := s.createRequest(e, name)
	if err != nil {
		return err
	}
	return e.retryWhileTaken(s.ParentSide, create, unix.EEXIST)
}

// sameVLAN returns the link that has the VLAN and is next to the parent, or nil. Such a link does not end by itself.
func (s *StackedLink) sameVLAN(e *Engine) *LinkInfo {
	parent, err := e.LinkIndex(s.ParentSide, s.Parent)
	if err != nil {
		return nil
	}
	all, _ := e.Links(s.ParentSide) // without a list the caller waits
	for _, l := range all {
		if l.Kind == "vlan" && l.Peer == parent && l.PeerNetns == -1 && int(netlink.Uint16(netlink.Attr(l.data, vlanID))) == s.VLAN {
			return l
		}
	}
	return nil
}

// alias returns the body of the request that sets the owner tag of a link.
func alias(name, tag string) netlink.Buffer {
	body := netlink.LinkMessage(0, 0, 0)
	body.String(unix.IFLA_IFNAME, name)
	body.Bytes(unix.IFLA_IFALIAS, []byte(tag))
	return body
}

// createRequest returns the request that creates the link under a name. It is sent in the parent's namespace and creates
// the link in the container's.
func (s *StackedLink) createRequest(e *Engine, name string) (r netlink.Request, err error) {
	parent, err := e.LinkIndex(s.ParentSide, s.Parent)
	if err != nil {
		return r, fmt.Errorf("parent: %w", err)
	}
	if e.ns[Container] == nil {
		return r, errNoContainer
	}
	body := newLink(name, s.MAC, s.MTU)
	body.Uint32(unix.IFLA_LINK, uint32(parent))
	if s.ParentSide == Host {
		body.Uint32(unix.IFLA_NET_NS_FD, uint32(e.ns[Container].FD()))
	}
	body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, s.Type)
		n.Nest(unix.IFLA_INFO_DATA, s.data)
	})
	return netlink.Request{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: body}, nil
}

// newLink starts the body of a request that creates a link, with what all our links have in common.
func newLink(name, mac string, mtu int) netlink.Buffer {
	body := netlink.LinkMessage(0, 0, 0)
	body.String(unix.IFLA_IFNAME, name)
	if mac != "" {
		body.Bytes(unix.IFLA_ADDRESS, macBytes(mac))
	}
	if mtu > 0 {
		body.Uint32(unix.IFLA_MTU, uint32(mtu))
	}
	body.Uint32(unix.IFLA_GROUP, LinkGroup)
	return body
}

func (s *StackedLink) data(n *netlink.Buffer) {
	switch s.Type {
	case "macvlan":
		n.Uint32(macvlanMode, StackedLinkModes(s.Type)[s.Mode])
		if s.QueueLen > 0 {
			n.Uint32(macvlanQueueLen, uint32(s.QueueLen))
		}
	case "ipvlan":
		n.Uint16(ipvlanMode, uint16(StackedLinkModes(s.Type)[s.Mode]))
	case "vlan":
		n.Uint16(vlanID, uint16(s.VLAN))
	}
}

const minMTU = 68 // bytes, RFC 791

// tooSmall reports whether the kernel may have refused a link because of its MTU.
func tooSmall(mtu int, err error) bool {
	return mtu > 0 && mtu < minMTU && errors.Is(err, unix.EINVAL)
}

func errTooSmall(mtu int, err error) error {
	return fmt.Errorf("MTU %d is less than %d bytes, the smallest of a link: %w", mtu, minMTU, err)
}

// explain turns an error of the kernel into a message for the user.
func (s *StackedLink) explain(err error) error {
	switch {
	case errors.Is(err, unix.EEXIST) && s.Type == "vlan":
		return fmt.Errorf("interface %s already exists in the container, or another link of %s has VLAN %d: %w", s.Name, s.Parent, s.VLAN, err)
	case errors.Is(err, unix.EEXIST):
		return nameTaken(s.Name, err)
	case tooSmall(s.MTU, err):
		return errTooSmall(s.MTU, err)
	case errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%s cannot be the parent of a link of type %s: it is a bridge port, or has links of another type or mode: %w", s.Parent, s.Type, err)
	}
	return unknownType(s.Type, err)
}

// unknownType explains the kernel's error for an unknown link type.
func unknownType(typ string, err error) error {
	if e, ok := errors.AsType[*netlink.Error](err); ok && e.Errno == unix.EOPNOTSUPP && e.Msg == "Unknown device type" {
		return fmt.Errorf("the kernel lacks links of type %s: %w", typ, err)
	}
	return err
}

func (s *StackedLink) diff(e *Engine) ([]string, error) {
	l, err := e.interfaceOfType(s.Name, s.Type)
	if err != nil {
		return nil, err
	}
	parent, err := e.Link(s.ParentSide, s.Parent)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, &goneError{"its parent " + s.Parent + " is missing in the " + s.ParentSide.String()}
	case err != nil:
		return nil, err
	case parent.Index != l.Peer && !s.isNextTo(parent, l):
		return nil, &goneError{s.Parent + " is not its parent"}
	}
	if id := int(netlink.Uint16(netlink.Attr(l.data, vlanID))); s.Type == "vlan" && id != s.VLAN {
		return nil, &goneError{fmt.Sprintf("VLAN is %d, want %d", id, s.VLAN)}
	}
	return append(s.attrs().differs(l), s.dataDiff(l)...), nil
}

// isNextTo reports whether a link and the parent that it was created on have the same parent: on a macvlan, the kernel
// creates a macvlan of the macvlan's parent, and the same for ipvlan.
func (s *StackedLink) isNextTo(parent, l *LinkInfo) bool {
	return s.Type != "vlan" && parent.Kind == s.Type && parent.Peer == l.Peer
}

func (s *StackedLink) attrs() commonAttrs {
	return commonAttrs{mac: s.MAC, mtu: s.MTU, ownerTag: s.OwnerTag, changed: s.changed}
}

func (s *StackedLink) without(later Object) Object {
	return withoutSettings(s, later, linkName{Container, s.Name}, func(o *StackedLink) *LinkSettings { return &o.changed })
}

// dataDiff compares the attributes of the link's type that can be changed.
func (s *StackedLink) dataDiff(l *LinkInfo) (d []string) {
	mode := netlink.Uint32(netlink.Attr(l.data, macvlanMode))
	switch s.Type {
	case "vlan":
		return nil
	case "ipvlan":
		mode = uint32(netlink.Uint16(netlink.Attr(l.data, ipvlanMode)))
	}
	for name, n := range StackedLinkModes(s.Type) {
		if n == mode && name != s.Mode {
			d = append(d, "mode is "+name+", want "+s.Mode)
		}
	}
	if s.QueueLen > 0 {
		d = append(d, unequal("bcqueuelen", int(netlink.Uint32(netlink.Attr(l.data, macvlanQueueLen))), s.QueueLen)...)
	}
	return d
}

// restore sets the attributes of the link and of its type again.
func (s *StackedLink) restore(e *Engine) error {
	if err := e.setLink(s, Container, s.Name, s.attrs()); err != nil || s.Type == "vlan" {
		return err
	}
	body := netlink.LinkMessage(0, 0, 0)
	body.String(unix.IFLA_IFNAME, s.Name)
	body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, s.Type)
		n.Nest(unix.IFLA_INFO_DATA, s.data)
	})
	return e.send(s, Container, netlink.Request{Type: unix.RTM_NEWLINK, Flags: 0, Body: body}, nil)
}

// remove also deletes a link that an interrupted ADD has not renamed yet.
func (s *StackedLink) remove(e *Engine) error {
	err := e.deleteInside(s.Name, s.Type, s.OwnerTag)
	if errors.Is(err, os.ErrNotExist) {
		return e.deleteInside(s.temporaryName(), s.Type, s.OwnerTag)
	}
	return err
}

// deleteInside deletes a link of the container that has the owner tag, or that has the type and no alias. An
// interrupted ADD leaves such a link, and the reference plugins create them.
func (e *Engine) deleteInside(name, typ, tag string) error {
	l, err := e.Link(Container, name)
	if err != nil {
		return err
	}
	if l.Alias != tag && (l.Alias != "" || l.Kind != typ) {
		return nil // another owner's link
	}
	delete(e.index[Container], name)
	_, err = e.Request(Container, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)})
	return err
}

// lacksFamily reports whether a list of routes failed because there is no such address family, or no such namespace.
func lacksFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || err != nil && netlink.IsAbsent(err)
}

// DefaultLink returns the name of the link of a side's default route: of IPv4, else of IPv6; of several routes, the one
// with the lowest metric.
func (e *Engine) DefaultLink(s Side) (string, error) {
	for _, fam := range []byte{IPv4, IPv6} {
		routes, err := e.Routes(s, fam, unix.RT_TABLE_MAIN)
		if lacksFamily(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("default route of the %s: %w", s, err)
		}
		best := -1
		for i, r := range routes {
			if r.Type == unix.RTN_UNICAST && r.Dst.Bits() == 0 && r.Index != 0 && (best < 0 || r.Metric < routes[best].Metric) {
				best = i
			}
		}
		if best >= 0 {
			l, err := e.LinkByIndex(s, routes[best].Index)
			if err != nil {
				return "", err
			}
			return l.Name, nil
		}
	}
	return "", fmt.Errorf("default route of the %s: %w", s, os.ErrNotExist)
}
