package policy

import (
	"maps"
	"net/netip"
	"slices"
)

// An isolated network has a network namespace of its own on each node, and a table there. Addresses of two networks may
// be equal, so an address belongs to an endpoint within its network only.

// InNetwork returns the world in which an isolated network's packets are decided: endpoints have the addresses that
// they have there and in the network's peers. Others do not exist. peers has the peers of each network.
func (w *World) InNetwork(network string, peers map[string][]string) *World {
	out := *w
	out.network, out.peers, out.Endpoints = network, peers, nil
	c := New("").ForNetwork(network, peers[network])
	for _, e := range w.Endpoints {
		if here := c.inNetwork(e); here != nil {
			out.Endpoints = append(out.Endpoints, here)
		}
	}
	return &out
}

// at returns the world in which packets are decided at an end: that of a peer for its addresses.
func (w *World) at(e *Endpoint, a netip.Addr) *World {
	for _, peer := range w.peers[w.network] {
		if slices.Contains(e.Isolated[peer], a) {
			return w.InNetwork(peer, w.peers)
		}
	}
	return w
}

// ForNetwork returns a compiler for an isolated network in the same world. It has no claims.
func (c *Compiler) ForNetwork(network string, peers []string) *Compiler {
	out := New(c.node)
	out.network, out.peers = network, peers
	if c.noLog {
		out.WithoutLog()
	}
	if c.noIPVS {
		out.WithoutIPVS()
	}
	for name, labels := range c.namespaces {
		out.SetNamespace(name, labels)
	}
	for node, list := range c.podAddrs {
		out.SetPodAddresses(node, list)
	}
	for _, n := range c.plainNodes {
		out.SetNode(n)
	}
	out.setEndpoints(c)
	for _, p := range c.policies {
		out.setPolicy(p)
	}
	return out
}

// SetPeers changes the isolated networks that this one reaches. Their endpoints are peers in rules. world has all
// endpoints.
func (c *Compiler) SetPeers(peers []string, world *Compiler) {
	c.peers = peers
	c.setEndpoints(world)
}

func (c *Compiler) setEndpoints(world *Compiler) {
	for key, e := range world.endpoints.byKey {
		c.replaceEndpoint(key, c.inNetwork(e))
	}
}

// Network returns the isolated network whose table the compiler has, or "".
func (c *Compiler) Network() string { return c.network }

// inNetwork returns an endpoint with the addresses that it has in this network and its peers. Without one, only
// endpoints of this node count: they may get a claim.
func (c *Compiler) inNetwork(e *Endpoint) *Endpoint {
	if e == nil || c.network == "" {
		return e
	}
	here := *e
	here.Addresses, here.direct = nil, nil
	var announced []netip.Addr
	for _, network := range append([]string{c.network}, c.peers...) {
		here.Addresses = append(here.Addresses, e.Isolated[network]...)
		announced = append(announced, e.Announced[network]...)
	}
	here.Announced = map[string][]netip.Addr{}
	maps.Copy(here.Announced, e.Announced)
	here.Announced[""] = announced
	if len(here.Addresses) == 0 && e.Node != c.node {
		return nil
	}
	return &here
}

// enforced returns those of an endpoint's addresses for which this node's table decides. For addresses in a peer's network,
// the table there does. An address that only an annotation has counts after an ADD only: whoever creates a pod can write
// the annotation.
func (c *Compiler) enforced(e *Endpoint, addrs []netip.Addr) []netip.Addr {
	if e == nil {
		return addrs
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		return c.claimOf(a) == nil && !slices.Contains(e.direct, a) && (slices.Contains(e.Announced[""], a) ||
			slices.ContainsFunc(c.peers, func(peer string) bool { return slices.Contains(e.Isolated[peer], a) }))
	})
}

// isNode reports whether an address counts as a node's. No endpoint of the host's networks gets an address that a node
// has, except one that ADD gave to it here: else another node could take a pod out of policy by reporting its address. An
// isolated network may have the same addresses as the nodes: then they are its endpoints'.
func (c *Compiler) isNode(a netip.Addr) bool {
	switch {
	case len(c.nodeAddrs[a]) == 0:
		return false
	case c.network != "":
		return len(c.endpoints.byAddr[a]) == 0 && c.claimOf(a) == nil
	}
	own := c.nodes[c.node]
	return c.claimOf(a) == nil || own != nil && slices.Contains(own.Addresses, a)
}

// usedByPods updates the sets of nodes if endpoints have got addresses of nodes, or had them.
func (c *Compiler) usedByPods(addrs []netip.Addr) {
	for _, a := range addrs {
		if len(c.nodeAddrs[a]) > 0 {
			c.updateNodeAddr(a)
		}
	}
}

// LocalNetworks returns the isolated networks in which endpoints of this node have addresses.
func (c *Compiler) LocalNetworks() map[string]bool {
	out := map[string]bool{}
	for _, e := range c.given {
		for network := range e.Isolated {
			out[network] = true
		}
	}
	return out
}
