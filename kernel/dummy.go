package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Dummy is a link of the container that leads nowhere: it holds addresses.
type Dummy struct {
	base
	Name string `json:",omitzero"`
	MAC  string `json:",omitzero"`
	Mark string `json:",omitzero"` // alias
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
	body.nest(unix.IFLA_LINKINFO, func(n *buf) { n.str(unix.IFLA_INFO_KIND, "dummy") })
	err := e.send(d, Container, request{unix.RTM_NEWLINK, unix.NLM_F_CREATE | unix.NLM_F_EXCL, body}, func(r response) error {
		switch {
		case r.err == nil:
			e.made(d)
		case errors.Is(r.err, unix.EEXIST):
			return nameTaken(d.Name, r.err)
		}
		return unknownType("dummy", r.err)
	})
	if err != nil {
		return err
	}
	return e.send(d, Container, request{unix.RTM_SETLINK, 0, alias(d.Name, d.Mark)}, nil)
}

func nameTaken(name string, err error) error {
	return fmt.Errorf("interface %s already exists in the container: %w", name, err)
}

func (d *Dummy) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Container, d.Name)
	if err != nil {
		return nil, err
	}
	return ownDiff(l, "dummy", d.Mark), nil
}

// ownDiff compares type and owner.
func ownDiff(l *LinkInfo, typ, mark string) []string {
	if l.Kind != typ {
		return []string{"is no " + typ + " but " + kindWords(l)}
	}
	if l.Alias != mark {
		return []string{fmt.Sprintf("alias is %q, want %q", l.Alias, mark)}
	}
	return nil
}

func (d *Dummy) remove(e *Engine) error { return e.deleteInside(d.Name, "dummy", d.Mark) }
