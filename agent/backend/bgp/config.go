// Package bgp is a node's BGP speaker. It announces the node's addresses to neighbours and returns their routes as
// plain data. It does not change the kernel; the agent creates the routes.
package bgp

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
)

// Config is the configuration of a speaker.
type Config struct {
	ASN      uint32
	RouterID netip.Addr   // an IPv4 address
	Local    []netip.Addr // of this node; used for sessions and as next hops
	Port     int          // TCP port to listen on; 0: 179

	Neighbours []Neighbour
	Advertise  []netip.Prefix
}

// Neighbour is a BGP neighbour.
type Neighbour struct {
	Address netip.Addr
	ASN     uint32
	Port    int // TCP; 0: 179

	// Passive neighbours connect to this node; this node does not connect to them (RFC 4271, section 8.1.1). Of two nodes
	// one is passive: when both connect at once, the library can fail to bring the session up for over a minute.
	Passive bool

	Router bool // it is in the backend's list of routers
}

const (
	defaultASN  = 64512 // the first private AS number (RFC 6996, section 5)
	defaultPort = 179
)

// Configure returns a node's configuration. Its neighbours are the backend's routers, or else all other nodes. An address of
// the node itself is no neighbour: a router of the list may be a node, and an earlier name of this node has its address.
func Configure(conf cluster.Backend, self *cluster.Node, nodes []*cluster.Node, advertise []netip.Prefix) Config {
	c := Config{ASN: cmp.Or(conf.ASN, defaultASN), RouterID: routerID(self), Advertise: slices.SortedFunc(slices.Values(advertise), netip.Prefix.Compare)}
	for _, a := range self.Addresses {
		c.Local = append(c.Local, a.Addr())
	}
	for _, p := range conf.BGPPeer {
		c.Neighbours = append(c.Neighbours, Neighbour{Address: p.Address, ASN: cmp.Or(p.ASN, c.ASN), Router: true})
	}
	for _, n := range nodes {
		six := !self.Address(false).IsValid() || !n.Address(false).IsValid()
		local, a := self.Address(six), n.Address(six)
		if len(conf.BGPPeer) == 0 && n.Name != self.Name && local.IsValid() && a.IsValid() {
			c.Neighbours = append(c.Neighbours, Neighbour{Address: a, ASN: c.ASN, Passive: a.Less(local)})
		}
	}
	c.Neighbours = slices.DeleteFunc(c.Neighbours, func(n Neighbour) bool { return slices.Contains(c.Local, n.Address) })
	slices.SortStableFunc(c.Neighbours, func(a, b Neighbour) int { return a.Address.Compare(b.Address) })
	c.Neighbours = slices.CompactFunc(c.Neighbours, func(a, b Neighbour) bool { return a.Address == b.Address })
	return c
}

// routerID returns the node's IPv4 address. Without one, it returns an ID derived from the node's name that is not a
// host address (RFC 6286, section 2.1).
func routerID(n *cluster.Node) netip.Addr {
	if a := n.Address(false); a.IsValid() {
		return a
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.Name))
	sum := h.Sum32()
	return netip.AddrFrom4([4]byte{240 | byte(sum>>24)&0x0f, byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// local returns this node's address of a family, or the zero address.
func (c Config) local(six bool) netip.Addr {
	for _, a := range c.Local {
		if a.Is6() == six {
			return a
		}
	}
	return netip.Addr{}
}

// source returns the address from which this node connects to a neighbour. The unspecified address leaves the choice to
// the kernel: a neighbour with a link-local address expects this node's link-local one.
func (c Config) source(neighbour netip.Addr) netip.Addr {
	if local := c.local(neighbour.Is6()); local.IsValid() && !neighbour.IsLinkLocalUnicast() {
		return local
	}
	if neighbour.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}
