package kernel

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// commonAttrs are the attributes that most link objects set. An attribute that is "" or 0 is not compared.
type commonAttrs struct {
	mac      string
	mtu      int // bytes
	ownerTag string
	changed  LinkSettings // attributes that a later plugin sets: not compared
}

// wanted returns the settings that no later plugin changes.
func (s commonAttrs) wanted() commonAttrs {
	if s.changed.MAC != "" {
		s.mac = ""
	}
	if s.changed.MTU != 0 {
		s.mtu = 0
	}
	return s
}

func (s commonAttrs) differs(l *LinkInfo) (d []string) {
	s = s.wanted()
	if s.ownerTag != "" && l.Alias != s.ownerTag {
		d = append(d, differentAlias(l.Alias, s.ownerTag))
	}
	d = append(d, unequal("address", l.MAC, cmp.Or(s.mac, l.MAC))...)
	return append(d, unequal("mtu", l.MTU, cmp.Or(s.mtu, l.MTU))...)
}

func differentAlias(have, want string) string { return fmt.Sprintf("alias is %q, want %q", have, want) }

// interfaceOfType returns a link of the container. It returns a goneError if the link has another type.
func (e *Engine) interfaceOfType(name, typ string) (*LinkInfo, error) {
	l, err := e.Link(Container, name)
	if err == nil && l.Kind != typ {
		return nil, &goneError{"is not of type " + typ + " but " + describeKind(l)}
	}
	return l, err
}

// setLink sets the attributes of a link that differ.
func (e *Engine) setLink(o Object, side Side, name string, s commonAttrs) error {
	l, err := e.Link(side, name)
	if err != nil {
		return err
	}
	s = s.wanted()
	body := netlink.LinkMessage(l.Index, 0, 0)
	if s.ownerTag != "" && s.ownerTag != l.Alias {
		body.Bytes(unix.IFLA_IFALIAS, []byte(s.ownerTag))
	}
	if s.mac != "" && s.mac != l.MAC {
		body.Bytes(unix.IFLA_ADDRESS, macBytes(s.mac))
	}
	if s.mtu != 0 && s.mtu != l.MTU {
		body.Uint32(unix.IFLA_MTU, uint32(s.mtu))
	}
	return e.send(o, side, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

// withoutSettings returns a copy of an object that creates a link, if a later object changes the link's attributes.
// changed returns where the copy notes them.
func withoutSettings[T any, P interface {
	*T
	Object
}](o P, later Object, at linkName, changed func(P) *LinkSettings) Object {
	l, ok := later.(*LinkAttrs)
	if !ok || l.on() != at {
		return o
	}
	c := P(new(T))
	*c = *o
	*changed(c) = changed(c).with(l.Set)
	return c
}
