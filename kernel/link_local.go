package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

const addrGenNone = 1 // linux/if_link.h: IN6_ADDR_GEN_MODE_NONE

// tagWithoutLinkLocal queues the request that tags a link and gives it no link-local address. The kernel keeps no IPv6
// state for a link with an MTU below 1280 bytes, or if IPv6 is disabled. Then it rejects the whole request, and a second
// one sets the tag alone.
func (e *Engine) tagWithoutLinkLocal(o Object, s Side, name, tag string) error {
	body := alias(name, tag)
	addNoLinkLocal(&body)
	return e.send(o, s, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, func(r netlink.Response) error {
		if !errors.Is(r.Err, unix.EAFNOSUPPORT) {
			return r.Err
		}
		_, err := e.Request(s, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: alias(name, tag)})
		return err
	})
}

// noLinkLocal returns the request that gives a link no link-local address. Send it with ignoreNoIPv6, as a request of
// its own: the kernel applies nothing of a request that it rejects.
func noLinkLocal(link string) netlink.Request {
	body := netlink.LinkMessage(0, 0, 0)
	body.String(unix.IFLA_IFNAME, link)
	addNoLinkLocal(&body)
	return netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}
}

func addNoLinkLocal(body *netlink.Buffer) {
	body.Nest(unix.IFLA_AF_SPEC, func(n *netlink.Buffer) {
		n.Nest(unix.AF_INET6, func(n *netlink.Buffer) { n.Uint8(unix.IFLA_INET6_ADDR_GEN_MODE, addrGenNone) })
	})
}

// ignoreNoIPv6 accepts that a link has no IPv6 state, and so never gets a link-local address. The kernel keeps none for
// a link with an MTU below 1280 bytes, or if IPv6 is disabled.
func ignoreNoIPv6(r netlink.Response) error {
	if errors.Is(r.Err, unix.EAFNOSUPPORT) {
		return nil
	}
	return r.Err
}
