package kernel

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// AnnounceAddresses announces a container's addresses once, as soon as its bridge port forwards. The kernel announces
// addresses (arp_notify, ndisc_notify) when a link comes up or when its hardware address is set. But the port drops
// packets until a kernel worker has seen its carrier, up to a second after the link came up. So this object waits for
// the port. Only then the two sysctls are written and the hardware address is set. See splitDeferred.
type AnnounceAddresses struct {
	base
	Port string // host end of the pair
	Link string // container end
	MAC  string // current address of the container end: setting it again announces
}

const (
	brportState      = 1 // linux/if_link.h: IFLA_BRPORT_STATE
	portDisabled     = 0 // linux/if_bridge.h; the states listening and learning belong to the spanning tree protocol
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

// waitForPort waits until the port forwards. On a bridge that is down it never does, and the error says so.
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

// waitForLink reads a link of the host until the condition holds, up to portTimeout, and reports whether it holds.
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
