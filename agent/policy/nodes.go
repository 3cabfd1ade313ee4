package policy

import (
	"net/netip"
	"slices"
)

// SetNode adds a node or changes it.
func (c *Compiler) SetNode(n *Node) {
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
			if c.nodeAddrs[a]--; c.nodeAddrs[a] == 0 {
				delete(c.nodeAddrs, a)
			}
		}
	}
	if now != nil {
		for _, a := range now.Addresses {
			touched[a] = true
			c.nodeAddrs[a]++
		}
	}
	for a := range touched {
		for key := range c.endpoints.byAddr[a] {
			c.endpointChanged(key)
		}
		c.setAddr(a) // it may be claimed
	}
	c.updateNodes()
}
