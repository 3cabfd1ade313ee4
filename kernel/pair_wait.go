package kernel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// pairState describes a pair that the engine created in this operation. Packets pass only after a kernel
// worker has seen the carrier of the host end, so Apply waits for that at its end.
type pairState struct {
	*Veth
	mac       string // current address of the container end
	up        [2]bool
	addressed bool // the container end has an address
	done      bool // packets pass
}

const (
	brportState      = 1 // linux/if_link.h: IFLA_BRPORT_STATE
	portDisabled     = 0 // linux/if_bridge.h; the states listening and learning belong to the spanning tree protocol
	portTimeout      = 2 * time.Second
	portPollInterval = 200 * time.Microsecond // at first: see poll
)

// notePair remembers a pair of an attachment.
func (e *Engine) notePair(v *Veth) {
	if v.PeerSide == Container && !v.IsShared {
		e.pairs = append(e.pairs, &pairState{Veth: v, mac: v.PeerMAC})
	}
}

// pair returns the pair that has a link as one of its ends, or a value that nobody reads.
func (e *Engine) pair(end linkName) *pairState {
	for _, p := range e.pairs {
		if slices.Contains(p.links(), end) {
			return p
		}
	}
	return &pairState{}
}

// joinsBridge reports whether a link is the container end of a pair on a bridge, which is in the list or exists already.
func (e *Engine) joinsBridge(list Objects, end linkName) bool {
	known := e.pair(end).Veth
	return slices.ContainsFunc(append(Of[*Veth](list), known), func(v *Veth) bool {
		return v != nil && v.Master != "" && !v.IsShared && end == linkName{v.PeerSide, v.PeerName}
	})
}

// phase is a part of Apply.
type phase int

const (
	creating   phase = iota
	announcing       // sysctls that make the kernel announce the addresses of a link
	finishing        // what the announcement would remove
	phaseCount
)

// waiter is an object that waits, on a link that joins a bridge, until its port forwards.
type waiter interface{ phase() phase }

// phasesOf groups objects by phase. If the sysctls were set earlier, the kernel would announce when the link comes up, too,
// and on a full bridge a thousand network stacks receive each announcement.
func (e *Engine) phasesOf(list Objects) (out [phaseCount]Objects) {
	for _, o := range list {
		p := creating
		if w, ok := o.(waiter); ok && w.phase() != creating && e.joinsBridge(list, o.on()) {
			p = w.phase()
		}
		out[p] = append(out[p], o)
	}
	return out
}

// awaitPairs waits until packets pass through the new pairs. It returns those on a bridge whose addresses must be
// announced.
func (e *Engine) awaitPairs() (silent []*pairState, err error) {
	for _, p := range e.pairs {
		switch {
		case p.done:
			continue
		case p.Master != "" && p.addressed:
			err = e.waitForPort(p.Name)
			silent = append(silent, p)
		case p.Master != "" && p.up[Container]: // without addresses: there is nothing to announce
			_, err = e.waitForLink(p.Name, (*LinkInfo).portEnabled)
		case p.Master == "" && p.up[Host] && p.up[Container]:
			_, err = e.waitForLink(p.Name, (*LinkInfo).operational)
		default:
			continue
		}
		if err != nil {
			return nil, about(p.Veth, err)
		}
		p.done = true
	}
	return silent, nil
}

// announceAll creates the objects that wait for the ports, and announces the addresses in between.
func (e *Engine) announceAll(p [phaseCount]Objects) error {
	silent, err := e.awaitPairs()
	if err == nil {
		err = e.ensureEach(p[announcing])
	}
	for _, s := range silent {
		if err == nil {
			err = e.announce(s)
		}
	}
	if err == nil {
		err = e.ensureAll(p[finishing])
	}
	return err
}

// announce sets the address of the container end again, so that the kernel announces its IP addresses (arp_notify,
// ndisc_notify).
func (e *Engine) announce(p *pairState) error {
	i, err := e.LinkIndex(Container, p.PeerName)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, 0, 0)
	body.Bytes(unix.IFLA_ADDRESS, macBytes(p.mac))
	return e.send(p.Veth, Container, netlink.Request{Type: unix.RTM_SETLINK, Flags: 0, Body: body}, nil)
}

// waitForPort waits until the port forwards. On a bridge that is down it never does, and the error says so.
func (e *Engine) waitForPort(port string) error {
	ok, err := e.waitForLink(port, (*LinkInfo).portEnabled)
	if err == nil && !ok {
		err = fmt.Errorf("bridge port %s is still disabled after %v: is the bridge up?", port, portTimeout)
	}
	return err
}

func (l *LinkInfo) portEnabled() bool {
	return netlink.Uint8(netlink.Attr(l.port, brportState)) != portDisabled
}

// waitForLink reads a link of the host until the condition holds, up to portTimeout, and reports whether it holds. Since
// kernel 6.9, reading the link makes the kernel check the carrier at once.
func (e *Engine) waitForLink(link string, so func(*LinkInfo) bool) (is bool, err error) {
	return e.poll(func() (bool, error) {
		l, err := e.getLink(Host, link, named(link)) // not from a snapshot
		return err == nil && so(l), err
	})
}

// poll asks until the answer is yes, up to portTimeout, and returns the last answer. Between questions, it waits an eighth
// of the time since the first one: on a busy host, the answer comes late, and questions would make it later.
func (e *Engine) poll(question func() (yes bool, err error)) (yes bool, err error) {
	return e.pollFor(portTimeout, question)
}

func (e *Engine) pollFor(limit time.Duration, question func() (yes bool, err error)) (yes bool, err error) {
	for began := time.Now(); ; {
		yes, err := question()
		waited := time.Since(began)
		if yes || err != nil {
			return yes, err
		}
		if waited > limit {
			return false, context.Cause(e.ctx) // the context may have ended during a long question
		}
		if err := e.pause(max(portPollInterval, waited/8)); err != nil {
			return false, err
		}
	}
}

// noteMAC notes that an object changed the address of a link.
func (e *Engine) noteMAC(end linkName, mac string) {
	if p := e.pair(end); end.side == Container {
		p.mac = cmp.Or(mac, p.mac)
	}
}
