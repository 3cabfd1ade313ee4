package inspect

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
)

// Survey is the state of a network namespace, apart from its firewall.
type Survey struct {
	Links  []*kernel.LinkInfo
	Addrs  []kernel.AddrInfo
	Routes []kernel.RouteInfo // of both families and every table
	Neighs []kernel.NeighInfo
	Rules  []kernel.RuleInfo
}

// Link returns the link with a name, or nil. A nil survey has none.
func (s *Survey) Link(name string) *kernel.LinkInfo {
	if s == nil || name == "" {
		return nil
	}
	for _, l := range s.Links {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// NewSurvey reads the state of a side's namespace.
func NewSurvey(e *kernel.Engine, s kernel.Side) (*Survey, error) {
	out := &Survey{}
	var err error
	if out.Links, err = e.Links(s); err != nil {
		return nil, err
	}
	if out.Addrs, err = e.AddrInfos(s, 0); err != nil {
		return nil, err
	}
	if out.Neighs, err = e.Neighs(s); err != nil {
		return nil, err
	}
	for _, fam := range []byte{kernel.IPv4, kernel.IPv6} {
		routes, err := e.Routes(s, fam, 0)
		if err != nil {
			return nil, err
		}
		rules, err := e.Rules(s, fam)
		if err != nil {
			return nil, err
		}
		out.Routes, out.Rules = append(out.Routes, routes...), append(out.Rules, rules...)
	}
	return out, nil
}

// RoutePath returns the index of the host's link by which a container's packet leaves that arrived by the link in. The
// error tells why the host drops the packet.
func RoutePath(e *kernel.Engine, to, from netip.Addr, in int) (int, error) {
	m, err := e.RouteTo(kernel.Host, to, func(b *netlink.Buffer) {
		(*b)[2] = byte(from.BitLen())
		b.Addr(unix.RTA_SRC, from)
		b.Uint32(unix.RTA_IIF, uint32(in))
	})
	if err != nil {
		return 0, err
	}
	return kernel.ParseRoute(m).Index, nil
}

// Listens reports whether a process has a UDP socket on a port of a side. Source: proc_net(5).
func Listens(e *kernel.Engine, s kernel.Side, port uint16) (yes bool) {
	_ = e.InNetns(s, func() error {
		for _, file := range []string{"udp", "udp6"} {
			raw, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				continue
			}
			for l := range strings.Lines(string(raw)) {
				f := strings.Fields(l)
				yes = yes || len(f) > 1 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port))
			}
		}
		return nil
	})
	return yes
}
