package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Bridge is a bridge of the host that attachments share. It gets an explicit MAC address, so that the address does not
// change with its ports. For an existing bridge that is its current address.
type Bridge struct {
	base
	Name          string `json:",omitzero"`
	MAC           string `json:",omitzero"`
	MTU           int    `json:",omitzero"` // bytes, of a bridge that is created; 0: the kernel's choice
	Promisc       bool   `json:",omitzero"` // set if true, never cleared
	VLANFiltering bool   `json:",omitzero"` // not of a third-party bridge: its other ports may carry tagged packets
	// Netfilter sends packets between the ports through the host's rules for forwarded packets. It needs the kernel module
	// br_netfilter.
	Netfilter bool `json:",omitzero"`
}

const ( // linux/if_link.h: IFLA_INFO_DATA of a bridge
	brVLANFiltering = 7
	brNetfilterIPv4 = 36
	brNetfilterIPv6 = 37
	brDefaultPVID   = 39
)

// NoMAC is the address of a bridge that has no ports and no explicit address. It would take the address of a port.
const NoMAC = "00:00:00:00:00:00"

// DefaultVLAN returns the VLAN that a new port of a bridge gets untagged, or 0: none, or the link is no bridge.
func (l *LinkInfo) DefaultVLAN() int {
	if l.Kind != "bridge" {
		return 0
	}
	return int(netlink.Uint16(netlink.Attr(l.data, brDefaultPVID)))
}

func (b *Bridge) kind() string { return "bridge" }
func (b *Bridge) Side() Side   { return Host }
func (b *Bridge) Shared() bool { return true }

func (b *Bridge) String() string {
	s := "ip link add " + b.Name
	if b.MAC != "" {
		s += " address " + b.MAC
	}
	if b.MTU > 0 {
		s += fmt.Sprintf(" mtu %d", b.MTU)
	}
	s += " up"
	if b.Promisc {
		s += " promisc on"
	}
	s += " type bridge"
	if b.VLANFiltering {
		s += " vlan_filtering 1"
	}
	if b.Netfilter {
		s += " nf_call_iptables 1 nf_call_ip6tables 1"
	}
	return s
}

func (b *Bridge) links() []linkName { return []linkName{{Host, b.Name}} }

func (b *Bridge) ensure(e *Engine) error {
	l, err := e.linkCached(Host, b.Name)
	if err == nil {
		err = b.ignoreRouters()
	}
	if errors.Is(err, os.ErrNotExist) {
		if err = b.create(e); err == nil || errors.Is(err, unix.EEXIST) { // EEXIST: a concurrent ADD created it
			l, err = e.Link(Host, b.Name)
		}
	}
	if err != nil {
		return err
	}
	return b.adjust(e, l)
}

func (b *Bridge) create(e *Engine) error {
	body := netlink.LinkMessage(0, 0, 0)
	body.String(unix.IFLA_IFNAME, b.Name)
	body.Bytes(unix.IFLA_ADDRESS, macBytes(b.MAC))
	body.Uint32(unix.IFLA_GROUP, LinkGroup) // only of our bridges: an existing one may hold the host's uplink
	if b.MTU > 0 {
		body.Uint32(unix.IFLA_MTU, uint32(b.MTU))
	}
	body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
		n.String(unix.IFLA_INFO_KIND, "bridge")
		n.Nest(unix.IFLA_INFO_DATA, setOptions(b.options(true)))
	})
	// The bridge is created down, and adjust brings it up: accept_ra must be 0 before the first packet.
	_, err := e.Request(Host, netlink.Request{Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: body})
	if err != nil {
		return fmt.Errorf("create bridge: %w", err)
	}
	// Neighbour discovery waits for the link-local address. It derives from the bridge's own MAC address and is unique,
	// so a second of duplicate address detection is skipped.
	return errors.Join(
		writeSysctl("net/ipv6/conf/"+b.Name+"/accept_ra", "0", true),
		writeSysctl("net/ipv6/conf/"+b.Name+"/accept_dad", "0", true))
}

// ignoreRouters keeps a third-party bridge from taking addresses and routes that a container advertises
// (CVE-2020-10749). The value 2 stays: an administrator chose it to accept routes although the host forwards, because
// the uplink is a port of the bridge.
func (b *Bridge) ignoreRouters() error {
	key := "net/ipv6/conf/" + b.Name + "/accept_ra"
	if have, err := readSysctl(key); err != nil || have != "1" {
		return nil // no IPv6, or already off
	}
	return writeSysctl(key, "0", true)
}

func setOptions(options []uint16) func(*netlink.Buffer) {
	return func(n *netlink.Buffer) {
		for _, at := range options {
			n.Uint8(at, 1)
		}
	}
}

// options returns the attributes that are 1. ours reports whether Fairlead creates or created the bridge.
func (b *Bridge) options(ours bool) (out []uint16) {
	if b.VLANFiltering && ours {
		out = append(out, brVLANFiltering)
	}
	if b.Netfilter {
		out = append(out, brNetfilterIPv4, brNetfilterIPv6)
	}
	return out
}

// lacks reports whether a bridge lacks one of these options.
func (b *Bridge) lacks(l *LinkInfo, options ...uint16) bool {
	return slices.ContainsFunc(options, func(at uint16) bool {
		return slices.Contains(b.options(l.Group == LinkGroup), at) && netlink.Uint8(netlink.Attr(l.data, at)) == 0
	})
}

// The kernel passes tagged packets by without this key: all packets of a bridge that filters VLANs, and those that a
// container tags. The receiver takes a packet with a priority tag, VLAN 0, for one without a tag.
const taggedNetfilter = "net/bridge/bridge-nf-filter-vlan-tagged"

// enableNetfilter prepares the host for a bridge whose packets pass its rules.
func (b *Bridge) enableNetfilter() error {
	if !b.Netfilter {
		return nil
	}
	have, err := readSysctl(taggedNetfilter)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("bridge %s: packets between its ports cannot pass the host's rules, because the kernel module br_netfilter is not loaded: "+
			`run "modprobe br_netfilter", and add it to /etc/modules-load.d for the next boot`, b.Name)
	}
	if err != nil || have == "1" {
		return err
	}
	return writeSysctl(taggedNetfilter, "1", false)
}

// adjust sets what an existing bridge lacks.
func (b *Bridge) adjust(e *Engine, l *LinkInfo) error {
	if l.Kind != "bridge" {
		return fmt.Errorf("%s exists and is not a bridge but %s: choose another name", b.Name, describeKind(l))
	}
	var flags uint32
	if !l.Up {
		flags |= unix.IFF_UP
	}
	if b.Promisc && !l.Promisc {
		flags |= unix.IFF_PROMISC
	}
	if err := b.enableNetfilter(); err != nil {
		return err
	}
	options := b.options(l.Group == LinkGroup)
	lacks := b.lacks(l, options...)
	mac := b.macToSet(l)
	if flags == 0 && !lacks && mac == "" {
		return nil
	}
	body := netlink.LinkMessage(l.Index, flags, flags)
	if mac != "" {
		body.Bytes(unix.IFLA_ADDRESS, macBytes(mac))
	}
	if lacks {
		body.Nest(unix.IFLA_LINKINFO, func(n *netlink.Buffer) {
			n.String(unix.IFLA_INFO_KIND, "bridge")
			n.Nest(unix.IFLA_INFO_DATA, setOptions(options))
		})
	}
	_, err := e.Request(Host, netlink.Request{Type: unix.RTM_NEWLINK, Flags: 0, Body: body})
	return err
}

func (b *Bridge) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Host, b.Name)
	if err != nil {
		return nil, err
	}
	if l.Kind != "bridge" {
		return []string{"is not of type bridge but " + describeKind(l)}, nil
	}
	var d []string
	if !l.Up {
		d = append(d, "is down")
	}
	if b.Promisc && !l.Promisc {
		d = append(d, "is not promiscuous")
	}
	if b.lacks(l, brVLANFiltering) {
		d = append(d, "does not filter VLANs")
	}
	if b.lacks(l, brNetfilterIPv4, brNetfilterIPv6) {
		d = append(d, "does not send packets between its ports through the host's rules")
	}
	if have, err := readSysctl(taggedNetfilter); b.Netfilter && (err != nil || have != "1") {
		d = append(d, "does not send packets with VLAN tags through the host's rules")
	}
	if b.ownsMAC(l) {
		d = append(d, unequal("address", l.MAC, b.MAC)...)
	}
	return d, nil
}

// ownsMAC reports whether the bridge must have the recorded address. Whoever created a third-party bridge may change
// its address.
func (b *Bridge) ownsMAC(l *LinkInfo) bool { return b.MAC != "" && l.Group == LinkGroup }

// restore creates the bridge, or restores what it lacks.
func (b *Bridge) restore(e *Engine) error {
	if err := b.ensure(e); err != nil {
		return err
	}
	l, err := e.Link(Host, b.Name)
	if err != nil || !b.ownsMAC(l) || l.MAC == b.MAC {
		return err
	}
	body := netlink.LinkMessage(l.Index, 0, 0)
	body.Bytes(unix.IFLA_ADDRESS, macBytes(b.MAC))
	_, err = e.Request(Host, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body})
	return err
}

func (b *Bridge) remove(*Engine) error { return nil }

func describeKind(l *LinkInfo) string {
	if l.Kind == "" {
		return "a device"
	}
	return "a link of type " + l.Kind
}
