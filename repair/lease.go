package repair

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/internal/netconf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugins/ipam"
	"github.com/fairlead/fairlead/plugins/ipam/dhcpd"
)

// Lease is the state of an attachment's addresses from DHCP. A lost address may belong to another machine by now, so
// only the daemon may put it back (RFC 2131, 4.4.5).
type Lease struct {
	Problem string // why addresses or routes are lost, or why nobody knows; "" if all are valid
	Away    bool   // no daemon answers
	Unknown bool   // the daemon has no such lease

	addrs  []netip.Addr
	routes []netip.Prefix // destinations
}

// LeaseOf asks the daemon about an attachment's lease. An attachment without DHCP has none. The reference daemon does not
// answer questions: its leases count as valid.
func LeaseOf(runtime *libcni.CNIConfig, rec *attach.Record) *Lease {
	l := &Lease{}
	for _, p := range rec.Parts {
		if res, err := p.Result.Get(); p.IPAM == "dhcp" && err == nil && res != nil {
			for _, ip := range res.IPs {
				l.addrs = append(l.addrs, ip.Address.Addr())
			}
		}
	}
	if len(l.addrs) == 0 {
		return l
	}
	socket := socketOf(runtime, rec)
	leases, err := dhcpd.List(socket)
	i := slices.IndexFunc(leases, func(s dhcpd.State) bool {
		return s.Network == rec.Network && s.Container == rec.ContainerID && s.IfName == rec.IfName
	})
	switch {
	case err != nil && strings.Contains(err.Error(), "can't find method"):
		return &Lease{}
	case err != nil:
		l.Problem, l.Away = err.Error(), true
	case i < 0:
		l.Problem, l.Unknown = "the DHCP daemon at "+socket+" has no lease for it", true
	default:
		l.Problem, l.addrs, l.routes = leases[i].Lost, leases[i].LostAddresses, leases[i].LostRoutes
	}
	return l
}

// socketOf returns the daemon's socket from the configuration that the runtime cached.
func socketOf(runtime *libcni.CNIConfig, rec *attach.Record) string {
	if a := cached(runtime, rec); a != nil {
		if sockets := netconf.IPAMTexts(a.Config, "daemonSocketPath"); len(sockets) > 0 {
			return sockets[0]
		}
	}
	return ipam.DefaultDHCPSocket
}

// Valid returns the objects of a list without the lost addresses and routes. The kernel deletes the routes of a family
// with its last address.
func (l *Lease) Valid(list kernel.Objects) (out kernel.Objects) {
	if l.Problem == "" {
		return list
	}
	lost := func(a *kernel.Addr) bool {
		return a.In == kernel.Container && slices.Contains(l.addrs, a.Prefix.Addr())
	}
	without := map[bool]bool{} // by family, whether the lease was all that there was
	for _, a := range l.addrs {
		without[a.Is4()] = !slices.ContainsFunc(kernel.Of[*kernel.Addr](list), func(o *kernel.Addr) bool {
			return o.In == kernel.Container && o.Prefix.Addr().Is4() == a.Is4() && !lost(o)
		})
	}
	for _, o := range list {
		switch o := o.(type) {
		case *kernel.Addr:
			if lost(o) {
				continue
			}
		case *kernel.Route:
			if o.In == kernel.Container && (without[o.Dst.Addr().Is4()] || slices.Contains(l.routes, o.Dst)) {
				continue
			}
		}
		out = append(out, o)
	}
	return out
}
