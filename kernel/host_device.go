package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// HostDevice is a device of the host that is in the container while the attachment exists. It returns under its own
// name. Its previous settings are saved here and in the alias, so it can return without a record.
type HostDevice struct {
	base
	Device        string `json:",omitzero"`     // name on the host
	Name          string `json:",omitzero"`     // name in the container
	OwnerTag      string `json:"Mark,omitzero"` // alias while it is in the container, see HostDeviceTag
	PreviousAlias string `json:"WasAlias,omitzero"`
	PreviousUp    bool   `json:"WasUp,omitzero"`
	Hardware      bool   `json:",omitzero"` // the kernel moves it to the host when the container's namespace ends

	// The container has the device's addresses and routes. On the host, the device gets these again: the kernel removes
	// them from a device that it moves.
	Network        bool           `json:",omitzero"`
	PreviousAddrs  []netip.Prefix `json:",omitzero"`
	PreviousRoutes []Route        `json:",omitzero"`
}

const hostDeviceSeparator = " was "

// HostDeviceTag returns the alias of a device in a container: the owner tag and the device's name on the host.
func HostDeviceTag(o Owner, device string) string { return o.Tag() + hostDeviceSeparator + device }

// ParseHostDeviceTag splits such an alias into the owner tag and the device's name on the host.
func ParseHostDeviceTag(alias string) (tag, device string, ok bool) {
	i := strings.LastIndex(alias, hostDeviceSeparator)
	if i < 0 || !strings.HasPrefix(alias, TagPrefix) {
		return "", "", false
	}
	return alias[:i], alias[i+len(hostDeviceSeparator):], true
}

func (m *HostDevice) kind() string { return "moved" }
func (m *HostDevice) Side() Side   { return Host }
func (m *HostDevice) Shared() bool { return false }

func (m *HostDevice) links() []linkName { return []linkName{{Container, m.Name}} }

func (m *HostDevice) String() string {
	return "ip link set " + m.Device + " netns container name " + m.Name
}

func (m *HostDevice) ensure(e *Engine) error {
	l, err := e.Link(Host, m.Device)
	if err != nil {
		return err
	}
	// Check the name first: a rename that fails after the move would leave the device in the container.
	if _, err := e.Link(Container, m.Name); err == nil {
		return fmt.Errorf("interface %s already exists in the container: %w", m.Name, unix.EEXIST)
	}
	e.noteCreated(m) // from here on it may be down
	if err := e.move(Host, Container, l, m.Name, m.OwnerTag); err != nil {
		return err
	}
	delete(e.index[Host], m.Device)
	return nil
}

// move moves a link, renames it and sets its alias in one message. The kernel takes a link down that it moves, but not
// one that it refuses to move, such as a bond. To rename a link in its namespace, move takes it down first.
func (e *Engine) move(from, to Side, l *LinkInfo, name, alias string) error {
	if e.ns[to] == nil {
		return errNoContainer
	}
	if l.Up && from == to {
		if _, err := e.Request(from, netlink.Request{Type: unix.RTM_NEWLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, unix.IFF_UP)}); err != nil {
			return fmt.Errorf("bring it down: %w", err)
		}
	}
	body := netlink.LinkMessage(l.Index, 0, 0)
	body.Uint32(unix.IFLA_NET_NS_FD, uint32(e.ns[to].FD()))
	body.String(unix.IFLA_IFNAME, name)
	body.Bytes(unix.IFLA_IFALIAS, []byte(alias))
	_, err := e.Request(from, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body})
	return err
}

func (m *HostDevice) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Container, m.Name)
	if err != nil {
		return nil, err
	}
	return commonAttrs{ownerTag: m.OwnerTag}.differs(l), nil
}

// restore sets the owner tag of the device.
func (m *HostDevice) restore(e *Engine) error {
	return e.setLink(m, Container, m.Name, commonAttrs{ownerTag: m.OwnerTag})
}

// remove returns the device to the host. It may have another name in the container by now, and it is on the host
// already if the container's namespace has ended.
func (m *HostDevice) remove(e *Engine) error {
	for _, side := range []Side{Container, Host} {
		if e.ns[side] == nil {
			continue
		}
		l, err := e.byAlias(side, m.Name, m.OwnerTag)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		return m.returnHome(e, side, l)
	}
	if e.ns[Container] == nil && m.Hardware {
		l, err := m.awaitReturn(e)
		if err != nil {
			return err
		}
		if l != nil {
			return m.returnHome(e, Host, l)
		}
	}
	l, err := m.withoutTag(e)
	if err != nil {
		return err
	}
	if l != nil {
		return m.returnHome(e, Container, l)
	}
	return m.bringUpAgain(e)
}

// The kernel moves the hardware of a namespace that has ended to the host in the background.
const (
	returnTime = 2 * time.Second
	returnPoll = 20 * time.Millisecond
)

// awaitReturn waits for a device that the kernel is moving to the host. It returns nil if the device does not come: somebody
// has restored it already, or removed the hardware.
func (m *HostDevice) awaitReturn(e *Engine) (*LinkInfo, error) {
	for end := time.Now().Add(returnTime); time.Now().Before(end) && e.pause(returnPoll) == nil; {
		if _, err := e.Link(Host, m.Device); err == nil {
			return nil, nil
		}
		if l, err := e.byAlias(Host, m.Name, m.OwnerTag); !errors.Is(err, os.ErrNotExist) {
			return l, err
		}
	}
	return nil, nil
}

// withoutTag returns the device if somebody changed its alias in the container, or nil. The container's link with its
// name is the device if it is hardware. Another link may also be one that replaced it, so that is an error.
func (m *HostDevice) withoutTag(e *Engine) (*LinkInfo, error) {
	if e.ns[Container] == nil {
		return nil, nil
	}
	if _, err := e.Link(Host, m.Device); !errors.Is(err, os.ErrNotExist) {
		return nil, err // the device is on the host
	}
	l, err := e.Link(Container, m.Name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case l.Group == LinkGroup || strings.HasPrefix(l.Alias, TagPrefix):
		return nil, nil // another attachment's link
	case l.Kind != "":
		return nil, fmt.Errorf("interface %s in the container has the alias %q, so it is not certain that it is the host's device %s: "+
			"if it is, run \"ip link set %s alias '%s'\" in the container, otherwise rename it; then run DEL again",
			l.Name, l.Alias, m.Device, l.Name, m.OwnerTag)
	}
	return l, nil
}

// bringUpAgain brings a device up that was taken down for a move that failed.
func (m *HostDevice) bringUpAgain(e *Engine) error {
	l, err := e.Link(Host, m.Device)
	if err != nil || l.Up || !m.PreviousUp {
		return err
	}
	if err := m.bringUp(e, m.Device); err != nil {
		return err
	}
	if !m.Network {
		return nil
	}
	return m.restoreNetwork(e, m.Device)
}

// returnHome moves the device to the host under its own name. If another device has that name by now, it stays in the
// container and works there, as with the reference plugin. If it is on the host already, because its namespace has
// ended, it keeps the name that it has there.
func (m *HostDevice) returnHome(e *Engine, side Side, l *LinkInfo) error {
	name := m.Device
	if other, err := e.Link(Host, name); err == nil && (side != Host || other.Index != l.Index) {
		if side != Host {
			return fmt.Errorf("return %s to the host: another device there is called %s: rename or remove that one, then run DEL again: %w", l.Name, name, unix.EEXIST)
		}
		name = l.Name
	}
	tag := m.PreviousAlias
	if m.Network {
		tag = m.OwnerTag // until it has its addresses: if this process is killed before, the next DEL finds the device
	}
	if err := e.move(side, Host, l, name, tag); err != nil {
		return fmt.Errorf("return %s to the host as %s: %w", l.Name, name, err)
	}
	delete(e.index[side], l.Name)
	if m.PreviousUp {
		if err := m.bringUp(e, name); err != nil {
			return err
		}
	}
	if !m.Network {
		return nil
	}
	if err := m.restoreNetwork(e, name); err != nil {
		return err
	}
	_, err := e.Request(Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: alias(name, m.PreviousAlias)})
	return err
}

// restoreNetwork gives the device on the host its addresses and routes again. Like every former value, one that the
// kernel refuses by now is lost.
func (m *HostDevice) restoreNetwork(e *Engine, name string) error {
	i, err := e.LinkIndex(Host, name)
	if err != nil {
		return err
	}
	add := func(typ uint16, body netlink.Buffer, what Object) {
		_, e2 := e.Request(Host, netlink.Request{Type: typ, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: body})
		if e2 != nil && !refusesFormer(e2) {
			err = errors.Join(err, fmt.Errorf("restore what %s had on the host: %s: %w", name, what, e2))
		}
	}
	for _, p := range m.PreviousAddrs {
		a := Addr{Link: name, Prefix: p}
		add(unix.RTM_NEWADDR, a.Message(i), &a)
	}
	for _, r := range m.PreviousRoutes {
		r.Link = name
		add(unix.RTM_NEWROUTE, r.Message(i), &r)
	}
	return err
}

// bringUp brings the device up on the host. It records nothing for Undo, because it is part of an undo itself.
func (m *HostDevice) bringUp(e *Engine, name string) error {
	l, err := e.Link(Host, name)
	if err != nil {
		return err
	}
	if _, err := e.Request(Host, netlink.Request{Type: unix.RTM_NEWLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, unix.IFF_UP, unix.IFF_UP)}); err != nil {
		return fmt.Errorf("bring %s up again: %w", name, err)
	}
	return nil
}

// byAlias returns the link with an alias. It tries the expected name first.
func (e *Engine) byAlias(s Side, name, alias string) (*LinkInfo, error) {
	if l, err := e.Link(s, name); err == nil && l.Alias == alias {
		return l, nil
	}
	all, err := e.Links(s)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if l.Alias == alias {
			return l, nil
		}
	}
	return nil, os.ErrNotExist
}
