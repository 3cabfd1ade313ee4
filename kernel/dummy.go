package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Dummy is a dummy link of the container, which only holds addresses.
type Dummy struct {
	base
	Name     string `json:",omitzero"`
	MAC      string `json:",omitzero"`
	OwnerTag string `json:"Mark,omitzero"` // alias

	changed LinkSettings // what a later plugin sets
}

func (d *Dummy) kind() string      { return "dummy" }
func (d *Dummy) Side() Side        { return Container }
func (d *Dummy) Shared() bool      { return false }
func (d *Dummy) links() []linkName { return []linkName{{Container, d.Name}} }

func (d *Dummy) String() string { return "ip link add " + d.Name + " address " + d.MAC + " type dummy" }

func (d *Dummy) ensure(e *Engine) error {
	if e.ns[Container] == nil {
		return errNoContainer
	}
	body := newLink(d.Name, d.MAC, 0)
	body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) { n.String(unix.IFLA_INFO_KIND, "dummy") })
	_, err := e.Request(Container, netlink.Request{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: body})
	if errors.Is(err, unix.EEXIST) {
		return nameTaken(d.Name, err)
	}
	if err != nil {
		return unknownType("dummy", err)
	}
	e.noteCreated(d)
	return e.send(d, Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: alias(d.Name, d.OwnerTag)}, nil)
}

func nameTaken(name string, err error) error {
	return fmt.Errorf("interface %s already exists in the container: %w", name, err)
}

func (d *Dummy) diff(e *Engine) ([]string, error) {
	l, err := e.interfaceOfType(d.Name, "dummy")
	if err != nil {
		return nil, err
	}
	return d.attrs().differs(l), nil
}

func (d *Dummy) attrs() commonAttrs {
	return commonAttrs{mac: d.MAC, ownerTag: d.OwnerTag, changed: d.changed}
}

func (d *Dummy) without(later Object) Object {
	return withoutSettings(d, later, linkName{Container, d.Name}, func(o *Dummy) *LinkSettings { return &o.changed })
}

// restore sets the attributes of the link again.
func (d *Dummy) restore(e *Engine) error { return e.setLink(d, Container, d.Name, d.attrs()) }

func (d *Dummy) remove(e *Engine) error { return e.deleteInside(d.Name, "dummy", d.OwnerTag) }
