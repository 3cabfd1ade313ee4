package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/fairlead/fairlead/agent/cluster"
)

// What another node says in the store is routed here only as far as a network's own
// document allows: who may write blocks alone can take nobody's packets.

// sound is a snapshot without what must not be routed, and why, by key. If all is well
// it is the same snapshot.
func sound(s *cluster.Snapshot, self *cluster.Node) (*cluster.Snapshot, map[string]error) {
	bad := map[string]error{}
	for name, other := range s.Displaced() {
		bad[cluster.NetworkKey(name)] = fmt.Errorf("its vni %d is network %s's", s.Networks[name].VNI, other)
	}
	for _, n := range s.Networks {
		c := claims{s: s, n: n, self: self, bad: bad}
		c.all()
	}
	if len(bad) == 0 {
		return s, nil
	}
	out := *s
	out.Nodes, out.Blocks, out.Addresses, out.Flannel = maps.Clone(s.Nodes), maps.Clone(s.Blocks), maps.Clone(s.Addresses), maps.Clone(s.Flannel)
	out.Networks = maps.Clone(s.Networks)
	for key := range bad {
		if name, is := strings.CutPrefix(key, cluster.NodesPrefix); is {
			delete(out.Nodes, name)
		}
		if name, is := strings.CutPrefix(key, cluster.NetworksPrefix); is {
			delete(out.Networks, name)
		}
		delete(out.Blocks, key)
		delete(out.Addresses, key)
		delete(out.Flannel, key)
	}
	return &out, bad
}

// claims are what nodes say that they have of a network.
type claims struct {
	s    *cluster.Snapshot
	n    *cluster.Network
	self *cluster.Node
	list []claimed
	bad  map[string]error // by key

	// Of the list, as far as it was needed: mostly nobody asks.
	keys  map[netip.Prefix][]string
	sizes map[int]bool // prefix lengths
	noted int
}

// claimed is what is routed, with its key.
type claimed struct {
	prefix netip.Prefix
	key    string
}

func (c *claims) all() {
	for key, b := range c.s.Blocks {
		if b.Network != c.n.Name {
			continue
		}
		if err := c.n.CanBlock(b.CIDR); err != nil {
			c.bad[key] = err
			continue
		}
		c.note(b.CIDR, key)
	}
	if c.n.Name == cluster.DefaultNetwork {
		c.leases()
	}
	for key, a := range c.s.Addresses {
		if a.Network == c.n.Name {
			c.address(key, a)
		}
	}
	if !c.n.Isolated {
		c.hosts()
	}
}

func (c *claims) note(p netip.Prefix, key string) {
	c.list = append(c.list, claimed{p, key})
}

func (c *claims) leases() {
	for key, l := range c.s.Flannel {
		for _, p := range l.Subnets {
			if !c.n.Covers(p) {
				c.bad[key] = fmt.Errorf("%s is in no subnet of network %s", p, c.n.Name)
				continue
			}
			c.note(p, key)
		}
	}
}

// address looks at one that is routed by itself: it is given one by one, or lies in
// nobody's block.
func (c *claims) address(key string, a *cluster.Address) {
	p := netip.PrefixFrom(a.IP, a.IP.BitLen())
	if !c.n.Covers(p) {
		c.bad[key] = fmt.Errorf("it is in no subnet of network %s", c.n.Name)
		return
	}
	if !c.n.GivesOneByOne(a.IP) {
		if blocks := c.around(a.IP); len(blocks) > 0 {
			c.bad[key] = fmt.Errorf("it is in %s", blocks[0])
			return
		}
	}
	c.note(p, key)
}

// around are the keys of all that is routed and has an address in it.
func (c *claims) around(a netip.Addr) (keys []string) {
	if !c.n.Covers(netip.PrefixFrom(a, a.BitLen())) {
		return nil
	}
	if c.keys == nil {
		c.keys, c.sizes = make(map[netip.Prefix][]string, len(c.list)), map[int]bool{}
	}
	for _, x := range c.list[c.noted:] {
		c.keys[x.prefix], c.sizes[x.prefix.Bits()] = append(c.keys[x.prefix], x.key), true
	}
	c.noted = len(c.list)
	for bits := range c.sizes {
		if p, err := a.Prefix(bits); err == nil {
			keys = append(keys, c.keys[p]...)
		}
	}
	slices.Sort(keys)
	return keys
}

// hosts looks for nodes in what is routed to nodes: packets to them would be led into
// the tunnel that they are to carry. Who says that he is where others' containers are
// is not heeded; but this node's own address is no container's.
func (c *claims) hosts() {
	for _, a := range c.self.Addresses {
		for _, key := range c.around(a.Addr()) {
			c.bad[key] = fmt.Errorf("this node has the address %s of it", a.Addr())
		}
	}
	for name, node := range c.s.Nodes {
		for _, a := range node.Addresses {
			if keys := c.around(a.Addr()); len(keys) > 0 && name != c.self.Name {
				c.bad[cluster.NodeKey(name)] = fmt.Errorf("its address %s is in %s", a.Addr(), keys[0])
			}
		}
	}
}

// left says what of the store is not heeded, by key, in order.
func left(s *cluster.Snapshot, bad map[string]error) (out []string) {
	all := maps.Clone(s.Problems)
	maps.Copy(all, bad)
	for _, key := range sortedKeys(all) {
		out = append(out, fmt.Sprintf("key %s of the store is not heeded: %s", strconv.Quote(short(key)), strings.Map(printable, short(all[key].Error()))))
	}
	return out
}

// short is the beginning of what somebody wrote.
func short(s string) string {
	const most = 400
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// printable has a mark in place of what would move a terminal's cursor.
func printable(r rune) rune {
	switch {
	case r == '\n':
		return ';'
	case unicode.IsPrint(r):
		return r
	}
	return unicode.ReplacementChar
}
