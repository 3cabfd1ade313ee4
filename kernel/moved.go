package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Moved is a device of the host that lives in the container for the time of an
// attachment and comes back under its own name. What the move overwrites is
// saved here, and in the alias, so that it comes back without a record too.
type Moved struct {
	base
	Device   string `json:",omitzero"` // its name on the host
	Name     string `json:",omitzero"` // its name in the container
	Mark     string `json:",omitzero"` // alias while it is away; see AwayMark
	WasAlias string `json:",omitzero"`
	WasUp    bool   `json:",omitzero"`
}

const awayWord = " was "

// AwayMark is the alias of a device that is away: its owner and its own name.
func AwayMark(o Owner, device string) string { return o.Mark() + awayWord + device }

// ParseAwayMark splits an alias into the owner's mark and the device's name.
func ParseAwayMark(alias string) (mark, device string, ok bool) {
	i := strings.LastIndex(alias, awayWord)
	if i < 0 || !strings.HasPrefix(alias, markPrefix) {
		return "", "", false
	}
	return alias[:i], alias[i+len(awayWord):], true
}

func (m *Moved) kind() string { return "moved" }
func (m *Moved) Side() Side   { return Host }
func (m *Moved) Shared() bool { return false }

func (m *Moved) links() []linkName { return []linkName{{Container, m.Name}} }

func (m *Moved) String() string {
	return "ip link set " + m.Device + " netns container name " + m.Name
}

func (m *Moved) ensure(e *Engine) error {
	l, err := e.Link(Host, m.Device)
	if err != nil {
		return err
	}
	// A rename that fails after the move would leave the device on the wrong side.
	if _, err := e.Link(Container, m.Name); err == nil {
		return fmt.Errorf("interface %s already exists in the container: %w", m.Name, unix.EEXIST)
	}
	e.made(m) // from where it is down
	if err := e.move(Host, Container, l, m.Name, m.Mark); err != nil {
		return err
	}
	delete(e.index[Host], m.Device)
	return nil
}

// move takes a link down, and in one message moves, renames and marks it.
func (e *Engine) move(from, to Side, l *LinkInfo, name, alias string) error {
	if e.ns[to] == nil {
		return errNoContainer
	}
	if l.Up {
		if _, err := e.now(from, request{unix.RTM_NEWLINK, 0, ifinfo(l.Index, 0, unix.IFF_UP)}); err != nil {
			return fmt.Errorf("take it down: %w", err)
		}
	}
	body := ifinfo(l.Index, 0, 0)
	body.u32(unix.IFLA_NET_NS_FD, uint32(e.ns[to].fd))
	body.str(unix.IFLA_IFNAME, name)
	body.bytes(unix.IFLA_IFALIAS, []byte(alias))
	_, err := e.now(from, request{unix.RTM_SETLINK, 0, body})
	return err
}

func (m *Moved) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Container, m.Name)
	if err != nil {
		return nil, err
	}
	if l.Alias != m.Mark {
		return []string{fmt.Sprintf("alias is %q, want %q", l.Alias, m.Mark)}, nil
	}
	return nil, nil
}

// remove brings the device home, from the container, under whatever name it
// has there now, or from the host, where the kernel put it when the namespace ended.
func (m *Moved) remove(e *Engine) error {
	for _, side := range []Side{Container, Host} {
		if e.ns[side] == nil {
			continue
		}
		l, err := e.byAlias(side, m.Name, m.Mark)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		return m.home(e, side, l)
	}
	return m.again(e)
}

// again takes a device up that was taken down to be moved, and was not.
func (m *Moved) again(e *Engine) error {
	l, err := e.Link(Host, m.Device)
	if err != nil || l.Up || !m.WasUp {
		return err
	}
	return m.takeUp(e)
}

func (m *Moved) home(e *Engine, side Side, l *LinkInfo) error {
	if err := e.move(side, Host, l, m.Device, m.WasAlias); err != nil {
		return fmt.Errorf("bring %s home as %s: %w", l.Name, m.Device, err)
	}
	delete(e.index[side], l.Name)
	if !m.WasUp {
		return nil
	}
	return m.takeUp(e)
}

// takeUp is no change that an undo takes back: it is one.
func (m *Moved) takeUp(e *Engine) error {
	l, err := e.Link(Host, m.Device)
	if err != nil {
		return err
	}
	if _, err := e.now(Host, request{unix.RTM_NEWLINK, 0, ifinfo(l.Index, unix.IFF_UP, unix.IFF_UP)}); err != nil {
		return fmt.Errorf("take %s up again: %w", m.Device, err)
	}
	return nil
}

// byAlias finds a marked link: first by the name it should have.
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
