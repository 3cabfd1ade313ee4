package inspect

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// ReadRuleset reads the ruleset of the engine's namespace. A host without nftables has an empty one.
func ReadRuleset(e *kernel.Engine) (*nft.Ruleset, error) {
	r := &nft.Ruleset{Sets: map[string]*nft.Set{}}
	tables, err := listAll(e, unix.NFT_MSG_GETTABLE)
	if err != nil {
		return nil, err
	}
	dormant := map[string]bool{}
	for _, m := range tables {
		dormant[nft.FamilyName(m[0])+" "+netlink.Text(netlink.Attr(m[4:], unix.NFTA_TABLE_NAME))] = netlink.Uint32BE(netlink.Attr(m[4:], unix.NFTA_TABLE_FLAGS))&1 != 0
	}
	chains, err := listAll(e, unix.NFT_MSG_GETCHAIN)
	if err != nil {
		return nil, err
	}
	byName := map[string]*nft.Chain{}
	for _, m := range chains {
		c := nft.ParseChain(m)
		c.Dormant = dormant[c.Family+" "+c.Table]
		byName[c.Family+" "+c.Table+" "+c.Name] = c
		r.Chains = append(r.Chains, c)
	}
	rules, err := listAll(e, unix.NFT_MSG_GETRULE)
	if err != nil {
		return nil, err
	}
	for _, m := range rules {
		p := m[4:]
		c := byName[nft.FamilyName(m[0])+" "+netlink.Text(netlink.Attr(p, unix.NFTA_RULE_TABLE))+" "+netlink.Text(netlink.Attr(p, unix.NFTA_RULE_CHAIN))]
		if c != nil {
			c.Rules = append(c.Rules, nft.ParseRule(p, c))
		}
	}
	setsOf(e, r)
	return r, nil
}

// listAll lists the objects of every family. It drops truncated messages.
func listAll(e *kernel.Engine, msg uint16) (out [][]byte, err error) {
	msgs, err := e.ListNFT(msg, nft.MessageForAll())
	if err != nil {
		return nil, fmt.Errorf("list nftables: %w", err)
	}
	for _, m := range msgs {
		if len(m) > 4 {
			out = append(out, m)
		}
	}
	return out, nil
}

const manyElements = 4096

// setsOf reads the sets that rules search, except our own sets: Check compares their elements one by one.
func setsOf(e *kernel.Engine, r *nft.Ruleset) {
	for _, c := range r.Chains {
		for _, rule := range c.Rules {
			for _, s := range rule.Steps {
				if s.Set == "" || r.Sets[s.Set] != nil {
					continue
				}
				r.Sets[s.Set] = &nft.Set{Unknown: true}
				if c.Table != kernel.Table {
					r.Sets[s.Set] = readSet(e, c.Family, c.Table, s.Set[len(nft.SetName(c.Family, c.Table, "")):])
				}
			}
		}
	}
}

func readSet(e *kernel.Engine, family, table, name string) *nft.Set {
	unknown := &nft.Set{Unknown: true}
	c, err := e.Netfilter()
	if err != nil {
		return unknown
	}
	resp, err := e.ReadNFT(nft.Part{Family: family, Table: table, Kind: "set", Name: name}.Get())
	if err != nil || len(resp.Messages) == 0 || len(resp.Messages[0]) < 4 {
		return unknown
	}
	flags := netlink.Uint32BE(netlink.Attr(resp.Messages[0][4:], unix.NFTA_SET_FLAGS))
	if flags&nft.SetFlagConcat != 0 {
		return unknown
	}
	msgs, err := nft.DumpElements(c, family, table, name)
	if err != nil {
		return unknown
	}
	out := &nft.Set{Intervals: flags&unix.NFT_SET_INTERVAL != 0}
	nft.EachElement(msgs, func(attrs []byte) { out.Elements = append(out.Elements, nft.ParseSetElement(attrs)) })
	if len(out.Elements) > manyElements {
		return unknown
	}
	return out
}
