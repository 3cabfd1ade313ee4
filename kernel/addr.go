package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Addr is an address of a link. IPAM allocated it, so there is no duplicate address detection unless DAD is set.
type Addr struct {
	base
	In              Side         `json:",omitzero"`
	Link            string       `json:",omitzero"`
	Prefix          netip.Prefix `json:",omitzero"`
	DAD             bool         `json:",omitzero"`
	NoRoute         bool         `json:",omitzero"`      // the kernel adds no route for the prefix
	IsShared        bool         `json:",omitzero"`      // a gateway address on a bridge
	RetryWhileTaken bool         `json:"Waits,omitzero"` // until no other link of the parent has the address, see retryWhileTaken
	ForceAddress    bool         `json:"Alone,omitzero"` // remove other addresses of the family that overlap (forceAddress)
}

func (a *Addr) kind() string { return "addr" }
func (a *Addr) Side() Side   { return a.In }
func (a *Addr) Shared() bool { return a.IsShared }
func (a *Addr) on() linkName { return linkName{a.In, a.Link} }

func (a *Addr) String() string {
	s := "ip addr add " + a.Prefix.String() + " dev " + a.Link
	if a.Prefix.Addr().Is6() && !a.DAD {
		s += " nodad"
	}
	if a.NoRoute {
		s += " noprefixroute"
	}
	return s
}

// Message returns the body of a message about the address: struct ifaddrmsg, rtnetlink(7).
func (a *Addr) Message(index int) netlink.Buffer {
	ip := a.Prefix.Addr()
	b := netlink.Buffer{netlink.AddrFamily(ip), byte(a.Prefix.Bits()), 0, unix.RT_SCOPE_UNIVERSE}
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b.Addr(unix.IFA_LOCAL, ip)
	b.Addr(unix.IFA_ADDRESS, ip)
	if ip.Is4() && a.Prefix.Bits() < 31 {
		b.Addr(unix.IFA_BROADCAST, broadcast(a.Prefix))
	}
	var flags uint32
	if ip.Is6() && !a.DAD {
		flags |= unix.IFA_F_NODAD
	}
	if a.NoRoute {
		flags |= unix.IFA_F_NOPREFIXROUTE
	}
	if flags != 0 {
		b.Uint32(unix.IFA_FLAGS, flags)
	}
	return b
}

func broadcast(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr().As4()
	host := uint32(1)<<(32-p.Bits()) - 1
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|host)
	return netip.AddrFrom4(a)
}

func (a *Addr) ensure(e *Engine) error {
	i, err := e.LinkIndex(a.In, a.Link)
	if err != nil {
		return err
	}
	e.pair(a.on()).addressed = a.In == Container
	add := netlink.Request{Type: unix.RTM_NEWADDR, Flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, Body: a.Message(i)}
	if a.RetryWhileTaken {
		return e.retryWhileTaken(a.In, add, unix.EADDRINUSE) // it goes away with its link
	}
	return e.send(a, a.In, add, func(r netlink.Response) error {
		if a.IsShared && errors.Is(r.Err, unix.EEXIST) {
			if a.Prefix.Addr().Is6() {
				e.later = append(e.later, later{a, func() error { return a.resolveLength(e) }})
			}
			return nil
		}
		if r.Err != nil {
			return a.explain(e, r.Err)
		}
		if a.IsShared {
			e.later = append(e.later, later{a, func() error { return a.resolveOverlaps(e) }})
		} else {
			e.noteCreated(a)
		}
		if a.Prefix.Addr().Is6() {
			e.later = append(e.later, later{a, func() error { return a.waitForUse(e, i) }})
		}
		return nil
	})
}

// explain tells that the kernel has no IPv6, or that the link's MTU is too small for it (RFC 8200, 5).
func (a *Addr) explain(e *Engine, err error) error {
	switch {
	case !a.Prefix.Addr().Is6():
		return err
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("this kernel has no IPv6, because of ipv6.disable=1 on its command line or a missing module: %w", err)
	case !errors.Is(err, unix.EINVAL):
		return err
	}
	if l, e2 := e.Link(a.In, a.Link); e2 == nil && l.MTU < MinIPv6MTU {
		return fmt.Errorf("an IPv6 address needs an MTU of at least %d bytes, and %s has %d: %w", MinIPv6MTU, a.Link, l.MTU, err)
	}
	return err
}

// MinIPv6MTU is the smallest MTU of a link with IPv6, in bytes (RFC 8200, 5).
const MinIPv6MTU = 1280

// waitForUse waits until the kernel uses an IPv6 address.
func (a *Addr) waitForUse(e *Engine, index int) error {
	if !a.DAD {
		a.waitForLocalRoute(e, index)
		return nil
	}
	return a.waitForDAD(e, index)
}

// dadTimeout limits the time for which an address may be tentative. Duplicate address detection takes up to two seconds,
// from when the link has a carrier (RFC 4862, 5.4).
const dadTimeout = 10 * time.Second

// waitForDAD waits until duplicate address detection ends. It returns an error if another host has the address.
func (a *Addr) waitForDAD(e *Engine, index int) error {
	done, err := e.pollFor(dadTimeout, func() (bool, error) {
		have, err := e.AddrInfos(a.In, index)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(have, func(h AddrInfo) bool { return h.Prefix == a.Prefix })
		switch {
		case i < 0:
			return false, fmt.Errorf("address %s of %s has disappeared", a.Prefix, a.Link)
		case have[i].Duplicate:
			return false, fmt.Errorf("duplicate address detection failed: another host on the link of %s has the address %s", a.Link, a.Prefix.Addr())
		}
		return !have[i].Tentative, nil
	})
	if err == nil && !done {
		err = fmt.Errorf("duplicate address detection for %s on %s has not ended after %v: does the link have a carrier?", a.Prefix.Addr(), a.Link, dadTimeout)
	}
	return err
}

// localRouteTimeout limits the wait for an address's local route. The worker that adds it needs the kernel's network lock,
// as everybody does who creates, changes and removes links: on a host without a free processor it waited for seconds.
const localRouteTimeout = 10 * time.Second

// waitForLocalRoute waits until the kernel accepts packets to an IPv6 address and answers neighbours who ask for it. A
// kernel worker adds the local route, and on a busy host it comes late. Without that route the first packet is forwarded
// and lost, and a neighbour that has received the announcement does not ask again.
func (a *Addr) waitForLocalRoute(e *Engine, index int) {
	_, _ = e.pollFor(localRouteTimeout, func() (bool, error) {
		m, err := e.RouteTo(a.In, a.Prefix.Addr(), func(b *netlink.Buffer) { b.Uint32(unix.RTA_OIF, uint32(index)) })
		return err == nil && m[7] == unix.RTN_LOCAL, nil
	})
}

// resolveOverlaps handles the other addresses of a subnet after a shared link got a new address. It replaces them with
// ForceAddress, and else returns an error.
func (a *Addr) resolveOverlaps(e *Engine) error {
	have, err := e.Addrs(a.In, a.Link)
	if err != nil {
		return err
	}
	replaced := false
	for _, h := range have {
		if h == a.Prefix || !h.Overlaps(a.Prefix) || h.Addr().IsLinkLocalUnicast() {
			continue
		}
		out, verb := &Addr{In: a.In, Link: a.Link, Prefix: h}, "replace"
		if !a.ForceAddress {
			out, verb = a, "remove"
			err = fmt.Errorf("%s already has an address different from %s: %s (set forceAddress to replace it)", a.Link, a.Prefix, h)
		}
		if e2 := out.remove(e); e2 != nil && !errors.Is(e2, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("%s %s: %w", verb, out.Prefix, e2))
		}
		if err != nil {
			return err
		}
		replaced = true
	}
	if !replaced {
		return nil
	}
	// Removing an older address of the subnet also removed the new one.
	i, err := e.LinkIndex(a.In, a.Link)
	if err == nil {
		_, err = e.Request(a.In, netlink.Request{Type: unix.RTM_NEWADDR, Flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, Body: a.Message(i)})
	}
	return err
}

// resolveLength handles an IPv6 address that a shared link has with another prefix length: the kernel does not add it
// twice.
func (a *Addr) resolveLength(e *Engine) error {
	if _, err := a.find(e); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return a.resolveOverlaps(e)
}

// Addrs lists the addresses of a link.
func (e *Engine) Addrs(s Side, link string) ([]netip.Prefix, error) {
	i, err := e.LinkIndex(s, link)
	if err != nil {
		return nil, err
	}
	have, err := e.AddrInfos(s, i)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", link, err)
	}
	var out []netip.Prefix
	for _, a := range have {
		out = append(out, a.Prefix)
	}
	return out, nil
}

// diff does not compare the flags of a shared address: somebody else may have added it.
func (a *Addr) diff(e *Engine) ([]string, error) {
	h, err := a.find(e)
	if err != nil {
		return nil, err
	}
	if h.Duplicate {
		return []string{"failed duplicate address detection: another host on the link has it"}, nil
	}
	if a.IsShared {
		return nil, nil
	}
	d := unequal("noprefixroute", onOff(h.NoRoute), onOff(a.NoRoute))
	if a.Prefix.Addr().Is4() { // the address itself decides the scope of IPv6
		d = append(d, unequal("scope", h.Scope, unix.RT_SCOPE_UNIVERSE)...)
	}
	return d, nil
}

// find returns the address as the kernel has it, or os.ErrNotExist.
func (a *Addr) find(e *Engine) (AddrInfo, error) {
	i, err := e.LinkIndex(a.In, a.Link)
	if err != nil {
		return AddrInfo{}, err
	}
	have, err := readOnce(e, linkName{a.In, a.Link}, func() ([]AddrInfo, error) { return e.AddrInfos(a.In, i) })
	if err != nil {
		return AddrInfo{}, fmt.Errorf("%s: %w", a.Link, err)
	}
	for _, h := range have {
		if h.Prefix == a.Prefix {
			return h, nil
		}
	}
	return AddrInfo{}, os.ErrNotExist
}

// restore adds the address again, because the kernel does not change the flags of an existing one.
func (a *Addr) restore(e *Engine) error {
	if err := a.remove(e); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return a.ensure(e)
}

// implies returns the route to the address's subnet. The kernel adds none to 0.0.0.0/8 or a larger subnet that starts
// there (fib_add_ifaddr in net/ipv4/fib_frontend.c).
func (a *Addr) implies() Objects {
	subnet := a.Prefix.Masked().Addr()
	if a.NoRoute || a.Prefix.IsSingleIP() || subnet.Is4() && subnet.As4()[0] == 0 {
		return nil
	}
	return Objects{connectedRouteOf(a)}
}

func (a *Addr) remove(e *Engine) error {
	i, err := e.LinkIndex(a.In, a.Link)
	if err != nil {
		return err
	}
	_, err = e.Request(a.In, netlink.Request{Type: unix.RTM_DELADDR, Flags: 0, Body: a.Message(i)})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return os.ErrNotExist
	}
	return err
}
