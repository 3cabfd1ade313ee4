package kernel

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Announced is a bridge port that forwards, and the container's addresses
// announced through it, once. The kernel announces them (arp_notify,
// ndisc_notify) when a link comes up or its hardware address is set. The port
// forwards only once a worker has seen its carrier, up to a second after the link
// came up, and drops what comes before: so this waits for the port, and only then
// are the two keys written and the address set. See parted.
type Announced struct {
	base
	Port string // the host's end
	Link string // the container's
	MAC  string // the container's, as it is: setting it again is what announces
}

const (
	brportState  = 1 // linux/if_link.h: IFLA_BRPORT_STATE
	portDisabled = 0 // linux/if_bridge.h; listening and learning are a spanning tree's business
	portWait     = 2 * time.Second
	portPoll     = 200 * time.Microsecond
)

func (a *Announced) kind() string { return "announced" }
func (a *Announced) Side() Side   { return Container }
func (a *Announced) Shared() bool { return false }
func (a *Announced) on() linkName { return linkName{Container, a.Link} }

func (a *Announced) String() string { return "ip link set " + a.Link + " address " + a.MAC }

func (a *Announced) ensure(e *Engine) error {
	if err := a.forwards(e); err != nil {
		return err
	}
	i, err := e.ifindex(Container, a.Link)
	if err != nil {
		return err
	}
	body := ifinfo(i, 0, 0)
	body.bytes(unix.IFLA_ADDRESS, macBytes(a.MAC))
	return e.send(a, Container, request{unix.RTM_SETLINK, 0, body}, nil)
}

// forwards waits for the port. On a bridge that is down it never does: that is
// told at the end of the wait.
func (a *Announced) forwards(e *Engine) error {
	ok, err := e.await(a.Port, (*LinkInfo).forwards)
	if err == nil && !ok {
		err = fmt.Errorf("bridge port %s is still disabled after %v: is the bridge up?", a.Port, portWait)
	}
	return err
}

func (l *LinkInfo) forwards() bool { return num8(attr(l.port, brportState)) != portDisabled }

// await looks at a link of the host until it is so, for portWait at most, and tells
// whether it is.
func (e *Engine) await(link string, so func(*LinkInfo) bool) (is bool, err error) {
	for deadline := time.Now().Add(portWait); ; time.Sleep(portPoll) {
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

func (a *Announced) diff(e *Engine) ([]string, error) {
	l, err := e.Link(Host, a.Port)
	if err != nil {
		return nil, err
	}
	if !l.forwards() {
		return []string{"port " + a.Port + " is disabled"}, nil
	}
	return nil, nil
}

func (a *Announced) remove(*Engine) error { return nil }
