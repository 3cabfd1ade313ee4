package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Up brings a link up. It is an object of its own because sysctls and addresses must be set between the creation of a
// link and this.
type Up struct {
	base
	In              Side   `json:",omitzero"`
	Link            string `json:",omitzero"`
	RetryWhileTaken bool   `json:"Waits,omitzero"` // until the parent releases what the link needs, see retryWhileTaken
	IsShared        bool   `json:",omitzero"`
	AfterFirewall   bool   `json:"Filtered,omitzero"` // commit queued firewall rules first, so that no packet passes before
}

func (u *Up) kind() string   { return "up" }
func (u *Up) Side() Side     { return u.In }
func (u *Up) Shared() bool   { return u.IsShared }
func (u *Up) String() string { return "ip link set " + u.Link + " up" }
func (u *Up) on() linkName   { return linkName{u.In, u.Link} }

func (u *Up) ensure(e *Engine) error {
	if u.AfterFirewall {
		if err := e.commit(); err != nil {
			return err
		}
	}
	i, err := e.LinkIndex(u.In, u.Link)
	if err != nil {
		return err
	}
	e.pair(u.on()).up[u.In] = true
	up := netlink.Request{Type: unix.RTM_NEWLINK, Flags: 0, Body: netlink.LinkMessage(i, unix.IFF_UP, unix.IFF_UP)}
	if u.RetryWhileTaken {
		if err := e.retryWhileTaken(u.In, up, unix.EADDRINUSE); err != nil {
			return err
		}
		e.noteCreated(u)
		return nil
	}
	return e.send(u, u.In, up, func(r netlink.Response) error {
		if r.Err == nil {
			e.noteCreated(u)
		}
		return r.Err
	})
}

func (u *Up) diff(e *Engine) ([]string, error) {
	l, err := e.Link(u.In, u.Link)
	if err != nil {
		return nil, err
	}
	if !l.Up {
		return []string{"is down"}, nil
	}
	return nil, nil
}

// remove takes a link down that stays after the attachment, for example lo.
func (u *Up) remove(e *Engine) error {
	i, err := e.LinkIndex(u.In, u.Link)
	if err != nil {
		return err
	}
	_, err = e.Request(u.In, netlink.Request{Type: unix.RTM_NEWLINK, Flags: 0, Body: netlink.LinkMessage(i, 0, unix.IFF_UP)})
	return err
}
