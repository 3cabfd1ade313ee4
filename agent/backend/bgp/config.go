// Package bgp speaks BGP for a node: it tells neighbours the node's addresses, and
// keeps what they tell as plain data. It programs nothing: the agent makes routes of
// what was learned.
package bgp

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/cluster"
)

// Config is what a speaker should be.
type Config struct {
	ASN      uint32
	RouterID netip.Addr   // IPv4
	Local    []netip.Addr // of this node: sessions use them, and neighbours send packets there
	Port     int          // TCP, where it listens; 0: 179

	Neighbours []Neighbour
	Advertise  []netip.Prefix
}

// Neighbour is another speaker.
type Neighbour struct {
	Address netip.Addr
	ASN     uint32
	Port    int // TCP; 0: 179
}

const (
	defaultASN  = 64512 // the first for private use: RFC 6996, section 5
	defaultPort = 179
)

// Configure is the configuration of a node: its neighbours are the routers of its
// backend or, if it names none, all other nodes.
func Configure(conf cluster.Backend, self *cluster.Node, nodes []*cluster.Node, advertise []netip.Prefix) Config {
	c := Config{ASN: cmp.Or(conf.ASN, defaultASN), RouterID: routerID(self), Advertise: slices.SortedFunc(slices.Values(advertise), netip.Prefix.Compare)}
	for _, a := range self.Addresses {
		c.Local = append(c.Local, a.Addr())
	}
	for _, p := range conf.BGPPeer {
		c.Neighbours = append(c.Neighbours, Neighbour{Address: p.Address, ASN: cmp.Or(p.ASN, c.ASN)})
	}
	six := !self.Address(false).IsValid()
	for _, n := range nodes {
		if a := n.Address(six); len(conf.BGPPeer) == 0 && n.Name != self.Name && a.IsValid() {
			c.Neighbours = append(c.Neighbours, Neighbour{Address: a, ASN: c.ASN})
		}
	}
	slices.SortFunc(c.Neighbours, func(a, b Neighbour) int { return a.Address.Compare(b.Address) })
	return c
}

// routerID is the node's IPv4 address or, where it has none, a number that follows
// from its name and is no address of a host: RFC 6286, section 2.1.
func routerID(n *cluster.Node) netip.Addr {
	if a := n.Address(false); a.IsValid() {
		return a
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.Name))
	sum := h.Sum32()
	return netip.AddrFrom4([4]byte{240 | byte(sum>>24)&0x0f, byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// local is this node's address of a family; the zero address if it has none.
func (c Config) local(six bool) netip.Addr {
	for _, a := range c.Local {
		if a.Is6() == six {
			return a
		}
	}
	return netip.Addr{}
}
