package kernel

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Announced is a bridge port that forwards, and the container's addresses
// announced through it, once. The kernel announces them (arp_notify,
// ndisc_notify) when a link comes up or its hardware address is set. The port
// forwards only once a worker has seen its carrier, up to a second after the link
// came up, and drops what comes before: so this waits for the port, and only then
// are the two keys written and the address set. See parted.
type AnnounceAddresses struct {
	base
	Port string // the host's end
	Link string // the container's
	MAC  string // the container's, as it is: setting it again is what announces
}

const (
	brportState      = 1 // linux/if_link.h: IFLA_BRPORT_STATE
	portDisabled     = 0 // linux/if_bridge.h; listening and learning are a spanning tree's business
	portTimeout      = 2 * time.Second
	portPollInterval = 200 * time.Microsecond
)

func (a *AnnounceAddresses) kind() string { return "announced" }
func (a *AnnounceAddresses) Side() Side   { return Container }
func (a *AnnounceAddresses) Shared() bool { return false }
func (a *AnnounceAddresses) on() linkName { return linkName{Container, a.Link} }

func (a *AnnounceAddresses) String() string { return "ip link set " + a.Link + " address " + a.MAC }

func (a *AnnounceAddresses) ensure(e *Engine) error {
	if err := a.waitForPort(e); err != nil {
		return err
	}
	i, err := e.LinkIndex(Container, a.Link)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, 0, 0)
	body.Bytes(unix.IFLA_ADDRESS, macBytes(a.MAC))
	return e.send(a, Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

// forwards waits for the port. On a bridge that is down it never does: that is
// told at the end of the wait.
func (a *AnnounceAddresses) waitForPort(e *Engine) error {
	ok, err := e.waitForLink(a.Port, (*LinkInfo).portEnabled)
	if err == nil && !ok {
		err = fmt.Errorf("bridge port %s is still disabled after %v: is the bridge up?", a.Port, portTimeout)
	}
	return err
}

func (l *LinkInfo) portEnabled() bool {
	return netlink.Uint8(netlink.Attr(l.port, brportState)) != portDisabled
}

// await looks at a link of the host until it is so, for portWait at most, and tells
// whether it is.
func (e *Engine) waitForLink(link string, so func(*LinkInfo) bool) (is bool, err error) {
	for deadline := time.Now().Add(portTimeout); ; time.Sleep(portPollInterval) {
		l, err := e.Link(Host, link)
		if err != nil {
			return false, err
		}
		if so(l) {
			return true, nil
		}
		if time.Now().After(deadline) {
			return false, nil
		}
	}
}

func (a *AnnounceAddresses) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Host, a.Port)
	if err != nil {
		return nil, err
	}
	if !l.portEnabled() {
		return []string{"port " + a.Port + " is disabled"}, nil
	}
	return nil, nil
}

func (a *AnnounceAddresses) remove(*Engine) error { return nil }
