package dhcpd

import (
	"net/netip"
	"time"
)

// State is the state of a lease, for administrators and programs.
type State struct {
	Network   string   `json:"network"`
	Container string   `json:"container"`
	IfName    string   `json:"ifname"`
	Netns     string   `json:"netns"`
	Addresses []string `json:"addresses"`
	State     string   `json:"state"` // "waiting", "held" or "lost"
	Lost      string   `json:"lost,omitempty"`

	LostAddresses []netip.Addr   `json:"lostAddresses,omitempty"`
	LostRoutes    []netip.Prefix `json:"lostRoutes,omitempty"` // destinations

	Renew  time.Time `json:"renew,omitzero"` // next renewal; zero: never
	Expire time.Time `json:"expire,omitzero"`
}

// States returns the states of all leases, in order.
func (d *Daemon) States() []State {
	out := []State{} // so that JSON has no null
	for _, l := range d.all("") {
		out = append(out, l.state())
	}
	return out
}

func (l *lease) state() State {
	s := State{Network: l.saved.Network, Container: l.saved.ContainerID, IfName: l.saved.IfName, Netns: l.saved.Netns, Addresses: []string{}, State: "waiting"}
	if !l.isReady() {
		return s
	}
	for _, ip := range l.result.IPs {
		s.Addresses = append(s.Addresses, ip.Address.String())
	}
	s.State = "held"
	var gone netConfig
	if gone, s.Lost = l.missing(); s.Lost != "" {
		s.State, s.LostAddresses = "lost", gone.addresses()
		for _, rt := range gone.Routes {
			s.LostRoutes = append(s.LostRoutes, rt.Dst)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	renew, expire := forever, forever
	for _, p := range l.protocols {
		renew, expire = min(renew, p.term().Renew), min(expire, p.term().Expire)
	}
	s.Renew, s.Expire = clock(renew), clock(expire)
	return s
}

// clock converts an uptime to a time of day.
func clock(at time.Duration) time.Time {
	if at == forever {
		return time.Time{}
	}
	return time.Now().Add(at - uptime()).UTC().Round(time.Second)
}
