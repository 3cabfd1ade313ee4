package kernel

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// bridgeMember is a host link's membership in its bridge. Creating the pair sets it; a repair restores it on its own.
type bridgeMember struct {
	base
	Link, Master string
}

func (s *bridgeMember) kind() string         { return "enslaved" }
func (s *bridgeMember) Side() Side           { return Host }
func (s *bridgeMember) Shared() bool         { return false }
func (s *bridgeMember) on() linkName         { return linkName{Host, s.Link} }
func (s *bridgeMember) String() string       { return "ip link set " + s.Link + " master " + s.Master }
func (s *bridgeMember) remove(*Engine) error { return nil }

func (s *bridgeMember) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Host, s.Link)
	if err != nil {
		return nil, err
	}
	bridge, err := e.Link(Host, s.Master)
	if errors.Is(err, os.ErrNotExist) {
		return []string{"its bridge " + s.Master + " is missing"}, nil
	}
	switch {
	case err != nil:
		return nil, err
	case l.Master != bridge.Index:
		return []string{"is not a port of " + s.Master}, nil
	case disabledPort(l, bridge):
		// After a link has a carrier, a worker of the kernel enables its port, up to a second later (before kernel 6.9).
		enabled, err := e.waitForLink(s.Link, (*LinkInfo).portEnabled)
		if err != nil || enabled {
			return nil, err
		}
		return []string{"the port is disabled"}, nil
	}
	return nil, nil
}

// disabledPort reports whether both links are up and the port forwards nothing: somebody disabled it, or the kernel has
// yet to enable it.
func disabledPort(l, bridge *LinkInfo) bool {
	return l.Up && l.Carrier && bridge.Up && !l.portEnabled()
}

// restore makes the link a port of the bridge, and enables the port.
func (s *bridgeMember) restore(e *Engine) error {
	l, err := e.Link(Host, s.Link)
	if err != nil {
		return err
	}
	bridge, err := e.Link(Host, s.Master)
	if err != nil {
		return err
	}
	if l.Master != bridge.Index || !disabledPort(l, bridge) {
		return s.ensure(e)
	}
	body := netlink.LinkMessage(l.Index, 0, 0)
	body[0] = unix.AF_BRIDGE
	body.Nest(unix.IFLA_PROTINFO, func(n *netlink.Buffer) { n.Uint8(brportState, PortForwarding) })
	return e.send(s, Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

// ensure also takes the link out of another bridge.
func (s *bridgeMember) ensure(e *Engine) error {
	i, err := e.LinkIndex(Host, s.Link)
	if err != nil {
		return err
	}
	bridge, err := e.Link(Host, s.Master)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, 0, 0)
	body.Uint32(unix.IFLA_MASTER, uint32(bridge.Index))
	return e.send(s, Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}
