package policy

import (
	"net/netip"
	"reflect"
	"slices"
)

// SetNode adds a node or changes it. A node reports its status every few minutes: mostly nothing has changed.
func (c *Compiler) SetNode(n *Node) {
	if reflect.DeepEqual(c.plainNodes[n.Name], n) {
		return
	}
	c.plainNodes[n.Name] = n
	c.setNode(n.Name)
}

// SetPodAddresses sets the addresses that a node has in pod networks: those of its tunnels, from which its own packets and
// masqueraded ones come, and the gateways of its pods. Kubernetes does not know them.
func (c *Compiler) SetPodAddresses(node string, list []netip.Addr) {
	if slices.Equal(c.podAddrs[node], list) {
		return
	}
	if c.podAddrs[node] = list; len(list) == 0 {
		delete(c.podAddrs, node)
	}
	if c.plainNodes[node] != nil {
		c.setNode(node)
	}
}

// AddNodeAddresses adds addresses to nodes, see Compiler.SetPodAddresses.
func (w *World) AddNodeAddresses(all map[string][]netip.Addr) {
	for i, n := range w.Nodes {
		more := *n
		more.Addresses = append(slices.Clone(n.Addresses), all[n.Name]...)
		w.Nodes[i] = &more
	}
}

func (c *Compiler) setNode(name string) {
	n := *c.plainNodes[name]
	n.Addresses = slices.Clone(n.Addresses)
	for _, a := range c.podAddrs[name] {
		if !slices.Contains(n.Addresses, a) {
			n.Addresses = append(n.Addresses, a)
		}
	}
	old := c.nodes[name]
	c.nodes[name] = &n
	c.nodeChanged(old, &n)
}

// DeleteNode removes a node.
func (c *Compiler) DeleteNode(name string) {
	old := c.nodes[name]
	delete(c.nodes, name)
	delete(c.plainNodes, name)
	c.nodeChanged(old, nil)
}

func (c *Compiler) nodeChanged(old, now *Node) {
	touched := map[netip.Addr]bool{}
	if old != nil {
		for _, a := range old.Addresses {
			touched[a] = true
			exclude(c.nodeAddrs, a, old.Name)
		}
	}
	if now != nil {
		for _, a := range now.Addresses {
			touched[a] = true
			include(c.nodeAddrs, a, now.Name)
		}
	}
	for a := range touched {
		for key := range c.endpoints.byAddr[a] {
			c.endpointChanged(key)
		}
		c.setAddr(a) // it may be claimed
		c.updateNodeAddr(a)
	}
}

// updateNodeAddr adds an address to the sets of nodes that match a node with it, and removes it from the others.
func (c *Compiler) updateNodeAddr(a netip.Addr) {
	for _, x := range c.nodeSets {
		c.placeNodeAddr(x, a)
	}
}

func (c *Compiler) placeNodeAddr(x *shared, a netip.Addr) {
	matches := false
	if c.isNode(a) {
		for name := range c.nodeAddrs[a] {
			matches = matches || x.nodes.matches(c.nodes[name].Labels)
		}
	}
	if matches {
		c.setKey(x.set(familyOf(a)), a.String(), "")
	} else {
		c.deleteKey(x.set(familyOf(a)), a.String())
	}
}
