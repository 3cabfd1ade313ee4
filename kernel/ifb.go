package kernel

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// IFB is an intermediate functional block device of the host. Redirected incoming packets leave through it, so that a
// qdisc can shape them.
type IFB struct {
	base
	Name     string `json:",omitzero"`
	MAC      string `json:",omitzero"`
	MTU      int    `json:",omitzero"` // bytes
	OwnerTag string `json:"Mark,omitzero"`
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

// ensure creates the link and sets its owner tag in one write, so that a kill leaves no link without an owner. The link
// gets no link-local address.
func (i *IFB) ensure(e *Engine) error {
	create := netlink.LinkMessage(0, 0, 0)
	create.String(unix.IFLA_IFNAME, i.Name)
	create.Bytes(unix.IFLA_ADDRESS, macBytes(i.MAC))
	create.Uint32(unix.IFLA_GROUP, LinkGroup)
	create.Uint32(unix.IFLA_NUM_TX_QUEUES, 1)
	create.Uint32(unix.IFLA_NUM_RX_QUEUES, 1)
	if i.MTU > 0 {
		create.Uint32(unix.IFLA_MTU, uint32(i.MTU))
	}
	create.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) { n.String(unix.IFLA_INFO_KIND, "ifb") })
	if err := e.leaveOthersLink(i.Name, i.OwnerTag); err != nil {
		return err
	}
	err := e.send(i, Host, netlink.Request{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_ECHO, Body: create}, func(r netlink.Response) error {
		return i.created(e, r)
	})
	if err != nil {
		return err
	}
	return e.tagWithoutLinkLocal(i, Host, i.Name, i.OwnerTag)
}

func (i *IFB) created(e *Engine, r netlink.Response) error {
	if errors.Is(r.Err, unix.EOPNOTSUPP) {
		return fmt.Errorf("the kernel lacks ifb devices (module ifb): %w", r.Err)
	}
	if r.Err != nil {
		return r.Err
	}
	e.noteCreated(i)
	for _, m := range r.Messages {
		if l := ParseLink(m); l.Name == i.Name {
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
		return []string{"is not of type ifb but " + describeKind(l)}, nil
	}
	return i.attrs().differs(l), nil
}

func (i *IFB) attrs() commonAttrs { return commonAttrs{mac: i.MAC, mtu: i.MTU, ownerTag: i.OwnerTag} }

// restore creates the link, or sets the attributes of an existing one. The kernel cannot change its address, so a link of
// the owner with another one is created again.
func (i *IFB) restore(e *Engine) error {
	l, err := e.Link(Host, i.Name)
	if err == nil && l.Alias == i.OwnerTag && l.MAC != i.MAC {
		err = e.deleteLink(Host, i.Name, i.OwnerTag)
		if err == nil {
			err = os.ErrNotExist
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return i.ensure(e)
	}
	if err != nil {
		return err
	}
	return e.setLink(i, Host, i.Name, i.attrs())
}

func (i *IFB) remove(e *Engine) error {
	err := e.deleteLink(Host, i.Name, i.OwnerTag)
	if errors.Is(err, os.ErrNotExist) {
		return os.ErrNotExist
	}
	return err
}
