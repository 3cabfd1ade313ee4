package nftable

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// Counter has the count of a rule with "counter".
type Counter struct {
	Chain, Comment string
	Handle         uint64 // of the rule; the kernel gives it to no other rule of the table
	Verdict        string // that ends the rule: "accept", "drop", "goto"; "": none
	Target         string // of jump and goto
	nft.Counter
}

// Counters returns the counters of a table's rules, or of those of one chain, in order. The error is os.ErrNotExist if the
// table does not exist.
func (p *Programmer) Counters(family, table, chain string) (out []Counter, err error) {
	if _, err := p.get(nft.Part{Family: family, Table: table, Kind: "table"}); err != nil {
		return nil, fmt.Errorf("nftables table %s %s: %w", family, table, err)
	}
	b := nft.Message(family)
	b.String(unix.NFTA_RULE_TABLE, table)
	if chain != "" {
		b.String(unix.NFTA_RULE_CHAIN, chain)
	}
	msgs, err := p.conn.Dump(netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_GETRULE, Body: b})
	if err != nil {
		return nil, fmt.Errorf("list the rules of the nftables table %s %s: %w", family, table, err)
	}
	for _, m := range msgs {
		of := &nft.Chain{Family: family, Table: netlink.Text(netlink.Attr(m[4:], unix.NFTA_RULE_TABLE)), Name: netlink.Text(netlink.Attr(m[4:], unix.NFTA_RULE_CHAIN))}
		if of.Table != table || chain != "" && of.Name != chain {
			continue // not every kernel looks at the names in the request
		}
		r := nft.ParseRule(m[4:], of)
		if r.Counter == nil {
			continue
		}
		c := Counter{Chain: of.Name, Comment: r.Comment, Handle: r.Handle, Counter: *r.Counter}
		if n := len(r.Steps); n > 0 {
			c.Verdict, c.Target = r.Steps[n-1].Verdict, r.Steps[n-1].Chain
		}
		out = append(out, c)
	}
	return out, nil
}
