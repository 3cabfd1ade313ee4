package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Veth is a pair of links: one end on the host, and the peer in its own namespace under its final name. Both are
// created down (see Up). The host end carries the owner tag. A bridge port gets no link-local address.
type Veth struct {
	base
	Type       string `json:",omitzero"` // "": "veth"; "netkit" (kernel 6.7)
	Name       string `json:",omitzero"`
	MAC        string `json:",omitzero"`
	PeerSide   Side   `json:",omitzero"`
	PeerName   string `json:",omitzero"`
	PeerMAC    string `json:",omitzero"`
	MTU        int    `json:",omitzero"`         // bytes; 0: the kernel's 1500
	Master     string `json:",omitzero"`         // bridge of the host; "": none
	SwitchPort bool   `json:"Switched,omitzero"` // the host end becomes a port of a switch that is not Master
	OwnerTag   string `json:"Mark,omitzero"`     // alias of the host end
	IsShared   bool   `json:",omitzero"`         // the pair belongs to a network, not to one attachment

	changed LinkSettings // what a later plugin sets at the container end
}

const (
	infoPeer       = 1 // linux/veth.h: VETH_INFO_PEER; linux/if_link.h: IFLA_NETKIT_PEER_INFO
	netkitMode     = 5 // linux/if_link.h: IFLA_NETKIT_MODE
	netkitEthernet = 0 // NETKIT_L2
)

func (v *Veth) kind() string { return "veth" }
func (v *Veth) Side() Side   { return Host }
func (v *Veth) Shared() bool { return v.IsShared }

func (v *Veth) String() string {
	s := "ip link add " + v.Name
	if v.MAC != "" {
		s += " address " + v.MAC
	}
	if v.MTU > 0 {
		s += fmt.Sprintf(" mtu %d", v.MTU)
	}
	if v.Master != "" {
		s += " master " + v.Master
	}
	s += " type " + v.typ()
	if v.Type == Netkit {
		s += " mode l2"
	}
	s += " peer name " + v.PeerName
	if v.PeerMAC != "" {
		s += " address " + v.PeerMAC
	}
	if v.PeerSide == Container {
		s += " netns container"
	}
	return s
}

// Netkit is a link type made for eBPF programs at both ends. Kernel 6.7, built with CONFIG_NETKIT.
const Netkit = "netkit"

func (v *Veth) typ() string {
	if v.Type == "" {
		return "veth"
	}
	return v.Type
}

// IsPair reports whether a link is one end of a veth or netkit pair.
func (l *LinkInfo) IsPair() bool { return l.Kind == "veth" || l.Kind == Netkit }

func (v *Veth) links() []linkName {
	return []linkName{{Host, v.Name}, {v.PeerSide, v.PeerName}}
}

func (v *Veth) ensure(e *Engine) error {
	if v.IsShared {
		if l, err := e.Link(Host, v.Name); err == nil {
			return v.rejoin(e, l)
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := e.leaveOthersLink(v.Name, v.OwnerTag); err != nil {
		return err
	}
	birth, err := v.createMessage(e)
	if err != nil {
		return err
	}
	err = e.send(v, Host, netlink.Request{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_ECHO, Body: birth}, func(r netlink.Response) error {
		return v.created(e, r)
	})
	if err != nil {
		return err
	}
	// The tag follows in the same write. At creation the kernel ignores an alias and rejects the address-generation mode.
	if v.Master == "" && !v.SwitchPort { // neighbour discovery on a routed link needs a link-local address
		return e.send(v, Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: alias(v.Name, v.OwnerTag)}, nil)
	}
	return e.tagWithoutLinkLocal(v, Host, v.Name, v.OwnerTag)
}

// rejoin makes an existing pair a port of its bridge again, if somebody has deleted and created the bridge since.
func (v *Veth) rejoin(e *Engine, l *LinkInfo) error {
	if v.Master == "" {
		return nil
	}
	bridge, err := e.LinkIndex(Host, v.Master)
	if err != nil || l.Master == bridge {
		return err
	}
	return (&bridgeMember{Link: v.Name, Master: v.Master}).ensure(e)
}

func (v *Veth) createMessage(e *Engine) (netlink.Buffer, error) {
	master := 0
	if v.Master != "" {
		var err error
		if master, err = e.LinkIndex(Host, v.Master); err != nil {
			return nil, err
		}
	}
	if e.ns[v.PeerSide] == nil {
		return nil, errNoContainer
	}
	body := netlink.LinkMessage(0, 0, 0)
	v.end(&body, v.Name, v.MAC)
	if master != 0 {
		body.Uint32(unix.IFLA_MASTER, uint32(master))
	}
	body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, v.typ())
		n.Nest(unix.IFLA_INFO_DATA, func(n *netlink.Buffer) {
			if v.Type == Netkit {
				n.Uint32(netkitMode, netkitEthernet)
			}
			n.Nest(infoPeer, func(n *netlink.Buffer) {
				*n = append(*n, netlink.LinkMessage(0, 0, 0)...)
				v.end(n, v.PeerName, v.PeerMAC)
				n.Uint32(unix.IFLA_NET_NS_FD, uint32(e.ns[v.PeerSide].FD()))
			})
		})
	})
	return body, nil
}

// end writes the attributes that both ends have at creation. They have one queue per direction: more queues cost memory
// and time, and help only a sender with several queues.
func (v *Veth) end(b *netlink.Buffer, name, mac string) {
	b.String(unix.IFLA_IFNAME, name)
	if mac != "" {
		b.Bytes(unix.IFLA_ADDRESS, macBytes(mac))
	}
	if v.MTU > 0 {
		b.Uint32(unix.IFLA_MTU, uint32(v.MTU))
	}
	b.Uint32(unix.IFLA_GROUP, LinkGroup)
	b.Uint32(unix.IFLA_NUM_TX_QUEUES, 1)
	b.Uint32(unix.IFLA_NUM_RX_QUEUES, 1)
}

func (v *Veth) created(e *Engine, r netlink.Response) error {
	if v.IsShared && errors.Is(r.Err, unix.EEXIST) {
		if _, _, err := v.ends(e); err == nil { // a concurrent ADD created it
			return nil
		}
	}
	if r.Err != nil {
		return v.explain(e, r.Err)
	}
	e.noteCreated(v)
	e.notePair(v)
	for _, m := range r.Messages {
		if l := ParseLink(m); l.Name == v.Name {
			e.index[Host][v.Name], e.index[v.PeerSide][v.PeerName] = l.Index, l.Peer
		}
	}
	return nil
}

// explain tells which of the two names is taken, or that the bridge is full.
func (v *Veth) explain(e *Engine, err error) error {
	switch {
	case errors.Is(err, unix.EEXIST):
		if _, e2 := e.Link(Host, v.Name); e2 == nil {
			return fmt.Errorf("host interface %s already exists: an earlier ADD created it; run DEL first: %w", v.Name, err)
		}
		return fmt.Errorf("interface %s already exists in the %v: %w", v.PeerName, v.PeerSide, err)
	case errors.Is(err, unix.EXFULL):
		return fmt.Errorf("bridge %s is full: it holds 1,023 ports at most: %w", v.Master, err)
	case tooSmall(v.MTU, err):
		return errTooSmall(v.MTU, err)
	}
	return unknownType(v.typ(), err)
}

func (v *Veth) diff(e *Engine) ([]string, error) {
	l, peer, err := v.ends(e)
	if err != nil {
		return nil, err
	}
	d := v.attrs().differs(l)
	for _, w := range v.peerAttrs().differs(peer) {
		d = append(d, v.PeerName+" in the "+v.PeerSide.String()+": "+w)
	}
	return d, nil
}

// ends returns both ends of the pair, or a goneError if they do not form the pair.
func (v *Veth) ends(e *Engine) (host, peer *LinkInfo, err error) {
	if host, err = e.Link(Host, v.Name); err != nil {
		return nil, nil, err
	}
	if host.Kind != v.typ() {
		return nil, nil, &goneError{"is not of type " + v.typ() + " but " + describeKind(host)}
	}
	peer, err = e.Link(v.PeerSide, v.PeerName)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil, &goneError{"its peer " + v.PeerName + " is missing in the " + v.PeerSide.String()}
	case err != nil:
		return nil, nil, err
	case peer.Kind != v.typ() || peer.Index != host.Peer:
		return nil, nil, &goneError{v.PeerName + " in the " + v.PeerSide.String() + " is not its peer"}
	}
	return host, peer, nil
}

func (v *Veth) attrs() commonAttrs {
	return commonAttrs{mac: v.MAC, mtu: v.MTU, ownerTag: v.OwnerTag}
}

func (v *Veth) peerAttrs() commonAttrs {
	return commonAttrs{mac: v.PeerMAC, mtu: v.MTU, changed: v.changed}
}

func (v *Veth) without(later Object) Object {
	return withoutSettings(v, later, linkName{v.PeerSide, v.PeerName}, func(o *Veth) *LinkSettings { return &o.changed })
}

// implies returns the membership in the bridge.
func (v *Veth) implies() Objects {
	if v.Master == "" {
		return nil
	}
	return Objects{&bridgeMember{Link: v.Name, Master: v.Master}}
}

// restore creates a missing pair of a network, or sets the attributes of both ends again.
func (v *Veth) restore(e *Engine) error {
	if _, err := e.Link(Host, v.Name); errors.Is(err, os.ErrNotExist) {
		return v.ensure(e)
	} else if err != nil {
		return err
	}
	if err := e.setLink(v, Host, v.Name, v.attrs()); err != nil {
		return err
	}
	return e.setLink(v, v.PeerSide, v.PeerName, v.peerAttrs())
}

// remove deletes the pair by its host end. If that is missing, the container end may lead to it under another name, or to
// a pair of the reference plugin.
func (v *Veth) remove(e *Engine) error {
	err := e.deleteLink(Host, v.Name, v.OwnerTag)
	if !errors.Is(err, os.ErrNotExist) || v.PeerSide != Container || e.ns[Container] == nil {
		return err
	}
	in, err := e.Link(Container, v.PeerName)
	if err != nil || !in.IsPair() {
		return err
	}
	out, err := e.OtherEnd(in)
	if err != nil || !likeReference(out) && !ownedBy(out, v.OwnerTag) {
		return nil // another owner's pair
	}
	_, err = e.Request(Host, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(out.Index, 0, 0)})
	return err
}

// likeReference reports whether a host end is named like those of the reference plugin: "veth" and eight hexadecimal
// digits, without an alias.
func likeReference(l *LinkInfo) bool {
	digits, ok := strings.CutPrefix(l.Name, "veth")
	return ok && l.Kind == "veth" && l.Alias == "" && len(digits) == 8 && strings.Trim(digits, "0123456789abcdef") == ""
}

// ownedBy reports whether a link that belongs to an owner by its name or its peer has the owner's tag. Other software
// may have replaced the tag: then the link is one that Fairlead created, and that no other owner has.
func ownedBy(l *LinkInfo, tag string) bool {
	return l.Alias == tag || l.Group == LinkGroup && !strings.HasPrefix(l.Alias, TagPrefix)
}

// leaveOthersLink returns an error if a link of another owner has a name on the host, also as an alternative name. The
// request that tags a new link follows its creation in one write, and would tag that link.
func (e *Engine) leaveOthersLink(name, tag string) error {
	l, err := e.Link(Host, name)
	if errors.Is(err, os.ErrNotExist) || err == nil && ownedBy(l, tag) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("the host has a link %s that Fairlead did not create for this attachment: rename it, or remove its alternative name %s: %w", l.Name, name, os.ErrExist)
	}
	return err
}

// deleteLink deletes a link if it is the owner's. Its name derives from the owner.
func (e *Engine) deleteLink(s Side, name, tag string) error {
	l, err := e.Link(s, name)
	if err != nil {
		return err
	}
	if !ownedBy(l, tag) {
		return nil
	}
	delete(e.index[s], name)
	_, err = e.Request(s, netlink.Request{Type: unix.RTM_DELLINK, Flags: 0, Body: netlink.LinkMessage(l.Index, 0, 0)})
	return err
}
