package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// profiles has the chains of an endpoint on this node.
type profiles struct {
	endpoint *Endpoint
	addrs    []netip.Addr
	chains   [3]string // by direction, and toNode; "": everything is allowed
	closed   bool      // its namespace is not known yet, so its policies are not either: everything is dropped
}

// toNode stands next to the directions for egress to the endpoint's own node. NetworkPolicies always allow it:
// https://kubernetes.io/docs/concepts/services-networking/network-policies/. ClusterNetworkPolicies decide about it.
const toNode = 2

func directionOf(i int) direction {
	if i == toNode {
		return egress
	}
	return direction(i)
}

func compareRules(a, b *rules) int {
	return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.priority, b.priority), strings.Compare(a.id, b.id))
}

// updateLocal gives an endpoint of this node its chains. e is nil if it has gone or is on another node.
func (c *Compiler) updateLocal(key string, e *Endpoint, addrs []netip.Addr) {
	l := c.local[key]
	if l == nil && e == nil {
		return
	}
	if l == nil {
		l = &profiles{}
		c.local[key] = l
		include(c.localIn, e.Namespace, key)
	}
	touched := append(slices.Clone(l.addrs), addrs...)
	var chains [3]string
	if e == nil {
		exclude(c.localIn, l.endpoint.Namespace, key)
		delete(c.local, key)
	} else {
		_, known := c.namespaces[e.Namespace]
		l.closed = !known
		chains = c.profilesOf(e)
	}
	l.endpoint, l.addrs = e, slices.Clone(addrs)
	c.setProfiles(l, chains)
	for _, a := range touched {
		c.setAddr(a)
	}
	c.setSelf(touched)
}

// setProfiles moves an endpoint to other chains.
func (c *Compiler) setProfiles(l *profiles, now [3]string) {
	old := l.chains
	for _, name := range now {
		c.useChain(name)
	}
	l.chains = now
	for _, a := range l.addrs {
		c.setAddr(a)
	}
	for _, name := range old {
		c.dropChain(name)
	}
	c.updateMulticast()
}

// profilesOf returns the names of the chains for an endpoint, which it creates if necessary.
func (c *Compiler) profilesOf(e *Endpoint) (out [3]string) {
	selecting := c.selecting(e)
	for i := range out {
		out[i] = c.profile(i, selecting)
	}
	return out
}

// profile returns the name of the chain for the policies that select an endpoint, sorted.
func (c *Compiler) profile(i int, selecting []*rules) string {
	ids := [tiers][]string{}
	for _, p := range selecting {
		if p.applies[directionOf(i)] {
			ids[p.tier] = append(ids[p.tier], p.id)
		}
	}
	if len(ids[networkTier]) > 0 {
		ids[baselineTier] = nil
	}
	if i == toNode {
		ids[networkTier] = nil
	}
	return c.profileChain(i, ids)
}

// mapOf returns the map from the addresses of this node's endpoints to their chains for a direction.
func mapOf(d direction, family int) string { return mapFor(int(d), family) }

// mapFor is mapOf for a direction or toNode.
func mapFor(i, family int) string { return baseChain(i) + [2]string{"4", "6"}[family] }

// localWith returns the endpoint of this node that has an address, or nil.
func (c *Compiler) localWith(a netip.Addr) *profiles {
	if l := c.local[c.owner(a)]; l != nil && slices.Contains(l.addrs, a) {
		return l
	}
	return nil
}

// setAddr writes the elements of an address.
func (c *Compiler) setAddr(a netip.Addr) {
	owner := c.localWith(a)
	for i := range toNode + 1 {
		name := mapFor(i, familyOf(a))
		switch {
		case owner != nil && owner.closed, owner == nil && c.claimOf(a) != nil && !c.isNode(a):
			c.setKey(name, a.String(), "goto "+closedChain(directionOf(i)))
		case owner == nil || owner.chains[i] == "":
			c.deleteKey(name, a.String())
		default:
			c.setKey(name, a.String(), "goto "+owner.chains[i])
		}
	}
}

// selfSets have the pairs of addresses with which an endpoint reaches itself, for example by a Service.
func selfSet(family int) string { return [2]string{"self4", "self6"}[family] }

func (c *Compiler) setSelf(addrs []netip.Addr) {
	for _, a := range addrs {
		now := map[string]bool{}
		if l := c.localWith(a); l != nil {
			for _, b := range l.addrs {
				if a.Is4() == b.Is4() {
					now[b.String()] = true
				}
			}
		}
		set := c.table.Sets[selfSet(familyOf(a))]
		for key := range maps.Clone(set.Elements) {
			if from, to, _ := strings.Cut(key, " . "); from == a.String() && !now[to] {
				c.deleteKey(selfSet(familyOf(a)), key)
			}
		}
		for to := range now {
			c.setKey(selfSet(familyOf(a)), a.String()+" . "+to, "")
		}
	}
}

// LocalEndpoints returns the number of endpoints on this node.
func (c *Compiler) LocalEndpoints() int { return len(c.local) }

// PolicedEndpoints returns the number of endpoints on this node that a policy selects, or whose policies are not known.
func (c *Compiler) PolicedEndpoints() (n int) {
	for _, l := range c.local {
		if l.closed || l.chains != [3]string{} {
			n++
		}
	}
	return n
}
