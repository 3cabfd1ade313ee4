package kernel

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// Standing is a link that a test made itself and brings up again.
type Standing struct {
	base
	Name string
}

func (s *Standing) kind() string      { return "standing" }
func (s *Standing) Side() Side        { return Host }
func (s *Standing) Shared() bool      { return false }
func (s *Standing) String() string    { return "ip link set " + s.Name + " up" }
func (s *Standing) links() []linkName { return []linkName{{Host, s.Name}} }

func (s *Standing) ensure(e *Engine) error {
	i, err := e.ifindex(Host, s.Name)
	if err != nil {
		return err
	}
	body := netlink.LinkMessage(i, unix.IFF_UP, unix.IFF_UP)
	body.Uint32(unix.IFLA_MTU, 1450)
	return e.send(s, Host, netlink.Request{Type: unix.RTM_NEWLINK, Flags: 0, Body: body}, nil)
}

func (s *Standing) diff(e *Engine) (d []string, err error) {
	l, err := e.Link(Host, s.Name)
	if err != nil {
		return nil, err
	}
	if !l.Up {
		d = append(d, "is down")
	}
	if l.MTU != 1450 {
		d = append(d, "mtu differs")
	}
	if !strings.HasPrefix(l.Alias, "fairlead-agent ") {
		d = append(d, "alias differs")
	}
	return d, nil
}

func (s *Standing) remove(*Engine) error { return nil }

// Words say what an event is, for tests that did not want it.
func (ev Event) Words() string {
	return fmt.Sprintf("type %d, of port %d, nftables %v, %d bytes: %x", ev.typ, ev.port, ev.nft, len(ev.body), ev.body[:min(len(ev.body), 160)])
}
