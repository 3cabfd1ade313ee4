package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/kernel/netlink"
	"golang.org/x/sys/unix"
)

// AddrInfo is an address of a link.
type AddrInfo struct {
	Index     int // of the link
	Prefix    netip.Prefix
	Scope     byte // RT_SCOPE_*, rtnetlink(7)
	Tentative bool // not used until duplicate address detection ends
	Duplicate bool // another host on the link has it, so the kernel does not use it
	NoRoute   bool // the kernel added no route for the prefix
	Unstable  bool // temporary (RFC 8981; in IPv4, secondary), deprecated, tentative or duplicate
	Permanent bool // it has no lifetime: neither DHCP nor a router advertisement assigned it
}

// AddrInfos lists the addresses of the link with an index, or of all links if index is 0.
func (e *Engine) AddrInfos(s Side, index int) (out []AddrInfo, _ error) {
	msgs, err := e.Dump(s, netlink.Request{Type: unix.RTM_GETADDR, Body: binary.NativeEndian.AppendUint32(netlink.Buffer{0, 0, 0, 0}, uint32(index))})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, m := range msgs {
		if len(m) < unix.SizeofIfAddrmsg || index != 0 && int(netlink.Uint32(m[4:])) != index {
			continue
		}
		flags := uint32(m[2])
		if f := netlink.Attr(m[unix.SizeofIfAddrmsg:], unix.IFA_FLAGS); len(f) == 4 {
			flags = netlink.Uint32(f)
		}
		out = append(out, AddrInfo{
			Index: int(netlink.Uint32(m[4:])), Prefix: netip.PrefixFrom(netlink.LocalAddr(m), int(m[1])), Scope: m[3],
			Tentative: flags&unix.IFA_F_TENTATIVE != 0, Duplicate: flags&unix.IFA_F_DADFAILED != 0,
			NoRoute:   flags&unix.IFA_F_NOPREFIXROUTE != 0,
			Permanent: flags&unix.IFA_F_PERMANENT != 0,
			Unstable:  flags&(unix.IFA_F_TEMPORARY|unix.IFA_F_DEPRECATED|unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0,
		})
	}
	return out, nil
}

// GlobalAddrs lists the addresses of a link without its link-local ones (fe80::). Unstable addresses come last: the
// kernel lists the newest first, which with privacy extensions is a temporary one.
func (e *Engine) GlobalAddrs(s Side, index int) ([]netip.Prefix, error) {
	have, err := e.AddrInfos(s, index)
	stable, unstable := globalAddrs(have)
	return append(stable, unstable...), err
}

func globalAddrs(have []AddrInfo) (stable, unstable []netip.Prefix) {
	for _, a := range have {
		switch {
		case a.Scope == unix.RT_SCOPE_LINK:
		case a.Unstable:
			unstable = append(unstable, a.Prefix)
		default:
			stable = append(stable, a.Prefix)
		}
	}
	return stable, unstable
}

// LinkByAddr returns the host's link that has an address.
func (e *Engine) LinkByAddr(ip netip.Addr) (*LinkInfo, error) {
	all, err := e.AddrInfos(Host, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Prefix.Addr() == ip && a.Scope != unix.RT_SCOPE_LINK {
			return e.LinkByIndex(Host, a.Index)
		}
	}
	return nil, fmt.Errorf("no link has the address %s", ip)
}

// LinkAddrs returns a link of the host and its addresses without the link-local ones, and without those that another host
// on the link has.
func (e *Engine) LinkAddrs(name string) (l *LinkInfo, stable, unstable []netip.Prefix, err error) {
	if l, err = e.Link(Host, name); err != nil {
		return nil, nil, nil, err
	}
	have, err := e.AddrInfos(Host, l.Index)
	stable, unstable = globalAddrs(slices.DeleteFunc(have, func(a AddrInfo) bool { return a.Duplicate }))
	return l, stable, unstable, err
}
