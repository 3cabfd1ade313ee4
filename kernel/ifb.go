package kernel

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// IFB is a link of the host through which packets that arrive elsewhere can be
// sent, so that a qdisc shapes them (kernel's intermediate functional block).
type IFB struct {
	base
	Name string `json:",omitzero"`
	MAC  string `json:",omitzero"`
	MTU  int    `json:",omitzero"` // bytes
	Mark string `json:",omitzero"`
}

func (i *IFB) kind() string      { return "ifb" }
func (i *IFB) Side() Side        { return Host }
func (i *IFB) Shared() bool      { return false }
func (i *IFB) links() []linkName { return []linkName{{Host, i.Name}} }

func (i *IFB) String() string {
	s := "ip link add " + i.Name + " address " + i.MAC
	if i.MTU > 0 {
		s += fmt.Sprintf(" mtu %d", i.MTU)
	}
	return s + " type ifb"
}

// ensure makes it and marks it in one write, so that a kill leaves nothing
// without its owner. It makes no link-local address.
func (i *IFB) ensure(e *Engine) error {
	birth := ifinfo(0, 0, 0)
	birth.str(unix.IFLA_IFNAME, i.Name)
	birth.bytes(unix.IFLA_ADDRESS, macBytes(i.MAC))
	birth.u32(unix.IFLA_GROUP, Group)
	birth.u32(unix.IFLA_NUM_TX_QUEUES, 1)
	birth.u32(unix.IFLA_NUM_RX_QUEUES, 1)
	if i.MTU > 0 {
		birth.u32(unix.IFLA_MTU, uint32(i.MTU))
	}
	birth.nest(unix.IFLA_LINKINFO, func(n *buf) { n.str(unix.IFLA_INFO_KIND, "ifb") })
	err := e.send(i, Host, request{unix.RTM_NEWLINK, unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_ECHO, birth}, func(r response) error {
		return i.born(e, r)
	})
	if err != nil {
		return err
	}
	mark := ifinfo(0, 0, 0)
	mark.str(unix.IFLA_IFNAME, i.Name)
	mark.bytes(unix.IFLA_IFALIAS, []byte(i.Mark))
	mark.nest(unix.IFLA_AF_SPEC, func(n *buf) {
		n.nest(unix.AF_INET6, func(n *buf) { n.u8(unix.IFLA_INET6_ADDR_GEN_MODE, addrGenNone) })
	})
	return e.send(i, Host, request{unix.RTM_SETLINK, 0, mark}, nil)
}

func (i *IFB) born(e *Engine, r response) error {
	if errors.Is(r.err, unix.EOPNOTSUPP) {
		return fmt.Errorf("the kernel has no ifb devices (module ifb): %w", r.err)
	}
	if r.err != nil {
		return r.err
	}
	e.made(i)
	for _, m := range r.msgs {
		if l := parseLink(m); l.Name == i.Name {
			e.index[Host][i.Name] = l.Index
		}
	}
	return nil
}

func (i *IFB) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Host, i.Name)
	switch {
	case err != nil:
		return nil, err
	case l.Kind != "ifb":
		return []string{"is no ifb but " + kindWords(l)}, nil
	case l.Alias != i.Mark:
		return []string{fmt.Sprintf("alias is %q, want %q", l.Alias, i.Mark)}, nil
	case !l.Up:
		return []string{"is down"}, nil
	}
	return nil, nil
}

func (i *IFB) remove(e *Engine) error {
	err := e.deleteLink(Host, i.Name, i.Mark)
	if errors.Is(err, os.ErrNotExist) {
		return os.ErrNotExist
	}
	return err
}
