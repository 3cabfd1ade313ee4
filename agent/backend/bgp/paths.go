package bgp

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	bgppacket "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/agent/backend"
)

// peer converts a neighbour to the library's type. One session carries both families.
func (s *Speaker) peer(n Neighbour) *api.Peer {
	p := &api.Peer{
		Conf:   &api.PeerConf{NeighborAddress: n.Address.String(), PeerAsn: n.ASN},
		Timers: &api.Timers{Config: &api.TimersConfig{ConnectRetry: 5, HoldTime: 30, KeepaliveInterval: 10, IdleHoldTimeAfterReset: 5}},
		Transport: &api.Transport{
			LocalAddress: s.conf.source(n.Address).String(), RemotePort: uint32(cmp.Or(n.Port, defaultPort)), PassiveMode: n.Passive,
		},
		GracefulRestart: &api.GracefulRestart{
			Enabled: true, RestartTime: uint32(restartTime.Seconds()), DeferralTime: uint32(deferralTime.Seconds()), NotificationEnabled: true,
			LocalRestarting: time.Since(s.began) < restartTime,
		},
	}
	if n.ASN != s.conf.ASN {
		p.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: 2}
	}
	for _, afi := range []api.Family_Afi{api.Family_AFI_IP, api.Family_AFI_IP6} {
		p.AfiSafis = append(p.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		})
	}
	return p
}

func family(six bool) bgppacket.Family {
	if six {
		return bgppacket.RF_IPv6_UC
	}
	return bgppacket.RF_IPv4_UC
}

// path returns the path that announces one of this node's prefixes, with the node as next hop.
func (s *Speaker) path(p netip.Prefix) (*apiutil.Path, error) {
	six := p.Addr().Is6()
	via := s.conf.local(six)
	if !via.IsValid() {
		return nil, fmt.Errorf("this node (%v) has no address of that family", s.conf.Local)
	}
	nlri, err := bgppacket.NewIPAddrPrefix(p)
	if err != nil {
		return nil, err
	}
	attrs := []bgppacket.PathAttributeInterface{bgppacket.NewPathAttributeOrigin(bgppacket.BGP_ORIGIN_ATTR_TYPE_IGP)}
	if six {
		reach, err := bgppacket.NewPathAttributeMpReachNLRI(family(six), []bgppacket.PathNLRI{{NLRI: nlri}}, via)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, reach)
	} else {
		hop, err := bgppacket.NewPathAttributeNextHop(via)
		if err != nil {
			return nil, err
		}
		attrs = append(attrs, hop)
	}
	return &apiutil.Path{Family: family(six), Nlri: nlri, Attrs: attrs}, nil
}

// Learned returns the routes that neighbours announced. Until every neighbour has sent all its routes, it includes the
// kept routes.
func (s *Speaker) Learned() ([]backend.Learned, error) {
	found := map[netip.Prefix]backend.Learned{}
	for _, six := range []bool{false, true} {
		err := s.server.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family(six)}, func(nlri bgppacket.NLRI, paths []*apiutil.Path) {
			dst, err := netip.ParsePrefix(nlri.String())
			if hops := best(paths, six); err == nil && len(hops) > 0 {
				found[dst] = backend.Learned{Dst: dst, Via: hops}
			}
		})
		if err != nil {
			return nil, fmt.Errorf("list BGP routes: %w", err)
		}
	}
	s.mu.Lock()
	if s.complete() {
		s.kept = nil
	}
	for _, k := range s.kept {
		if _, ok := found[k.Dst]; !ok {
			found[k.Dst] = k
		}
	}
	s.mu.Unlock()
	out := make([]backend.Learned, 0, len(found))
	for _, l := range found {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b backend.Learned) int { return a.Dst.Compare(b.Dst) })
	return out, nil
}

// complete reports whether every neighbour has sent all its routes, or has had the time to.
func (s *Speaker) complete() bool {
	if time.Since(s.began) > restartTime {
		return true
	}
	for a := range s.neighbours {
		if !s.ended[ended{a, false}] || !s.ended[ended{a, true}] {
			return false
		}
	}
	return true
}

// best returns the next hops of the best path and of its equals. It returns none if this node originated the best path.
func best(paths []*apiutil.Path, six bool) (hops []netip.Addr) {
	i := slices.IndexFunc(paths, func(p *apiutil.Path) bool { return p.Best })
	if i < 0 || !learned(paths[i]) {
		return nil
	}
	for _, p := range paths {
		if hop := nextHop(p); usable(hop, six) && learned(p) && rank(p) == rank(paths[i]) && !slices.Contains(hops, hop) {
			hops = append(hops, hop)
		}
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return hops
}

// usable reports whether a route of a family can have a next hop. The kernel rejects a whole route for one next hop that
// it cannot have. The library accepts IPv6 next hops for IPv4 (RFC 8950), which this node does not support.
func usable(hop netip.Addr, six bool) bool {
	return hop.IsValid() && hop.Is6() == six && !hop.Is4In6() && !hop.IsUnspecified() && !hop.IsLoopback() && !hop.IsMulticast()
}

// learned reports whether a path came from a neighbour, not from this node.
func learned(p *apiutil.Path) bool {
	return p.PeerAddress.IsValid() && !p.PeerAddress.IsUnspecified() && !p.IsNexthopInvalid && !p.Withdrawal
}

// ranking holds the attributes that order paths, except the neighbour's identity: RFC 4271, section 9.1.2.2.
type ranking struct {
	pref, med uint32
	length    int
	origin    uint8
	external  bool
}

func rank(p *apiutil.Path) ranking {
	r := ranking{pref: 100, external: p.IsFromExternal}
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *bgppacket.PathAttributeLocalPref:
			r.pref = a.Value
		case *bgppacket.PathAttributeMultiExitDisc:
			r.med = a.Value
		case *bgppacket.PathAttributeOrigin:
			r.origin = a.Value
		case *bgppacket.PathAttributeAsPath:
			for _, v := range a.Value {
				r.length += v.ASLen()
			}
		}
	}
	return r
}

// nextHop returns a path's next hop. A router without a global IPv6 address sends an unspecified one and its link-local
// address (RFC 2545, section 3). The library drops the latter, which is the neighbour's in a session between such addresses.
func nextHop(p *apiutil.Path) netip.Addr {
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *bgppacket.PathAttributeNextHop:
			return a.Value
		case *bgppacket.PathAttributeMpReachNLRI:
			if a.Nexthop.IsUnspecified() && p.PeerAddress.IsLinkLocalUnicast() {
				return p.PeerAddress.WithZone("")
			}
			return a.Nexthop
		}
	}
	return netip.Addr{}
}
