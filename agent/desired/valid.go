package desired

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

// The agent routes other nodes' keys only as far as the network's document allows. So write access to blocks alone is
// not enough to capture other nodes' packets.

// Valid returns the snapshot without entries that must not be routed, and the reason for each removed key. If all
// entries are valid, it returns the same snapshot.
func Valid(s *cluster.Snapshot, self *cluster.Node) (*cluster.Snapshot, map[string]error) {
	bad := map[string]error{}
	for name, other := range s.VNIConflicts() {
		bad[cluster.NetworkKey(name)] = fmt.Errorf("its vni %d belongs to network %s", s.Networks[name].VNI, other)
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

// claims collects the prefixes of a network that nodes claim.
type claims struct {
	s    *cluster.Snapshot
	n    *cluster.Network
	self *cluster.Node
	list []claimed
	bad  map[string]error // by key

	// An index of list, built on demand: it is rarely needed.
	keys    map[netip.Prefix][]string
	sizes   map[int]bool // prefix lengths
	indexed int
}

// claimed is a prefix to route, and its key.
type claimed struct {
	prefix netip.Prefix
	key    string
}

func (c *claims) all() {
	for key, b := range c.s.Blocks {
		if b.Network != c.n.Name {
			continue
		}
		if err := c.n.CanBlock(b); err != nil {
			c.bad[key] = err
			continue
		}
		c.add(b.CIDR, key)
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

func (c *claims) add(p netip.Prefix, key string) {
	c.list = append(c.list, claimed{p, key})
}

func (c *claims) leases() {
	for key, l := range c.s.Flannel {
		for _, p := range l.Subnets {
			if !c.n.Covers(p) {
				c.bad[key] = fmt.Errorf("%s is in no subnet of network %s", p, c.n.Name)
				continue
			}
			c.add(p, key)
		}
	}
}

// address checks an address that is routed on its own: it must be assigned individually or lie outside all blocks.
func (c *claims) address(key string, a *cluster.Address) {
	p := netip.PrefixFrom(a.IP, a.IP.BitLen())
	if !c.n.Covers(p) {
		c.bad[key] = fmt.Errorf("it is in no subnet of network %s", c.n.Name)
		return
	}
	if !c.n.AssignsSingleAddresses(a.IP) {
		if blocks := c.keysCovering(a.IP); len(blocks) > 0 {
			c.bad[key] = fmt.Errorf("it is in %s", blocks[0])
			return
		}
	}
	c.add(p, key)
}

// keysCovering returns the keys of all claimed prefixes that contain an address.
func (c *claims) keysCovering(a netip.Addr) (keys []string) {
	if !c.n.Covers(netip.PrefixFrom(a, a.BitLen())) {
		return nil
	}
	if c.keys == nil {
		c.keys, c.sizes = make(map[netip.Prefix][]string, len(c.list)), map[int]bool{}
	}
	for _, x := range c.list[c.indexed:] {
		c.keys[x.prefix], c.sizes[x.prefix.Bits()] = append(c.keys[x.prefix], x.key), true
	}
	c.indexed = len(c.list)
	for bits := range c.sizes {
		if p, err := a.Prefix(bits); err == nil {
			keys = append(keys, c.keys[p]...)
		}
	}
	slices.Sort(keys)
	return keys
}

// hosts rejects node addresses inside routed prefixes: packets to such a node would enter the very tunnel that they
// carry. The claiming node is ignored, except for this node's own address: then the prefix is ignored.
func (c *claims) hosts() {
	for _, a := range c.self.Addresses {
		for _, key := range c.keysCovering(a.Addr()) {
			c.bad[key] = fmt.Errorf("this node's address %s is in it", a.Addr())
		}
	}
	for name, node := range c.s.Nodes {
		for _, a := range node.Addresses {
			if keys := c.keysCovering(a.Addr()); len(keys) > 0 && name != c.self.Name {
				c.bad[cluster.NodeKey(name)] = fmt.Errorf("its address %s is in %s", a.Addr(), keys[0])
			}
		}
	}
	for key, l := range c.s.Flannel {
		if l.IsOf(c.self) || l.FairleadNode != "" && c.s.Nodes[l.FairleadNode] != nil {
			continue // the node's own document has its addresses
		}
		for _, a := range l.Node().Addresses {
			if keys := c.keysCovering(a.Addr()); len(keys) > 0 {
				c.bad[key] = fmt.Errorf("its address %s is in %s", a.Addr(), keys[0])
			}
		}
	}
}

// describe returns a line for each invalid key, sorted by key.
func describe(all map[string]error) (out []string) {
	for _, key := range sortedKeys(all) {
		out = append(out, fmt.Sprintf("ignored key %s in the store: %s", strconv.Quote(truncate(key)), strings.Map(printable, truncate(all[key].Error()))))
	}
	return out
}

// truncate shortens text from the store.
func truncate(s string) string {
	const most = 400
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// printable replaces runes that could control a terminal.
func printable(r rune) rune {
	switch {
	case r == '\n':
		return ';'
	case unicode.IsPrint(r):
		return r
	}
	return unicode.ReplacementChar
}
