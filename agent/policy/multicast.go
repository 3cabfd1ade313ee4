package policy

import (
	"net/netip"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// A bridge delivers multicast and broadcast packets to all its ports, and no rule sees to which. So pods may send none past
// the node while a policy for ingress selects a pod on a bridge. Packets of other senders pass.

const (
	multicastSet   = "multicast"
	broadcastSet   = "broadcast"
	multicastChain = "ingress-multicast"

	toBridge = "multicast or broadcast, while a policy for ingress selects a pod on a bridge"
)

// multicastRanges are RFC 5771 and RFC 4291, section 2.7.
var multicastRanges = [2]addrRange{rangeOf(netip.MustParsePrefix("224.0.0.0/4")), rangeOf(netip.MustParsePrefix("ff00::/8"))}

// multicastRules are the rules of the ingress hook about multicast and broadcast packets.
func (c *Compiler) multicastRules() (out []nftable.Rule) {
	if !c.noMulticast {
		return nil
	}
	for f, ip := range [2]string{"ip", "ip6"} {
		fromPod := ip + " saddr . " + ip + " saddr @" + selfSet(f) + " " + ip + " daddr @"
		out = append(out, nftable.Rule{Text: fromPod + multicastSet + [2]string{"4", "6"}[f] + " goto " + multicastChain})
		if f == 0 {
			out = append(out, nftable.Rule{Text: fromPod + broadcastSet + " goto " + multicastChain})
		}
	}
	return out
}

// updateMulticast adds these rules when a policy for ingress selects a pod on a bridge of this node, and removes them.
func (c *Compiler) updateMulticast() {
	restricted, broadcasts := c.bridged()
	if restricted != c.noMulticast {
		c.noMulticast = restricted
		if restricted {
			c.set(broadcastSet, addrTypes[0], false)
		} else {
			delete(c.table.Sets, broadcastSet)
			c.setChanged(broadcastSet)
		}
		c.addMulticastDrop()
		c.setBase(int(ingress))
	}
	if !restricted {
		return
	}
	for key := range c.table.Sets[broadcastSet].Elements {
		if !broadcasts[key] {
			c.deleteKey(broadcastSet, key)
		}
	}
	for key := range broadcasts {
		c.setKey(broadcastSet, key, "")
	}
}

// bridged reports whether a policy for ingress selects a pod on a bridge, and returns the broadcast addresses there.
func (c *Compiler) bridged() (restricted bool, broadcasts map[string]bool) {
	broadcasts = map[string]bool{netip.AddrFrom4([4]byte{255, 255, 255, 255}).String(): true}
	for _, claim := range c.claims {
		if len(claim.Bridged) == 0 {
			continue
		}
		l := c.local[claim.key()]
		restricted = restricted || l == nil || l.closed || l.chains[ingress] != "" || !claim.isFor(c.given[claim.key()])
		for _, p := range claim.Bridged {
			if p.IsValid() && p.Addr().Is4() && p.Bits() < 31 {
				broadcasts[rangeOf(p).last.String()] = true
			}
		}
	}
	return restricted, broadcasts
}

func (c *Compiler) addMulticastDrop() {
	if !c.noMulticast {
		c.setChain(multicastChain, nil)
		return
	}
	b := &builder{c: c}
	b.drop(ingress, toBridge)
	c.setChain(multicastChain, &nftable.Chain{Rules: b.rules})
}
