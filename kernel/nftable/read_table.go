package nftable

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// Read returns the table that the kernel has. The error is os.ErrNotExist if it does not exist.
//
// Of the rules, Read knows those of network policy. The text of any other is UnknownRule, and what is known about it.
func (p *Programmer) Read(ctx context.Context, family, name string) (*Table, error) {
	out := New(family, name)
	r := &reading{p: p, desired: emptyState(out)}
	m, err := p.get(r.desired.table())
	if err == nil && len(r.desired.table().Differs(m)) > 0 {
		err = errors.New("it is dormant: no rule of it applies")
	}
	for _, read := range []func(*Table) error{r.tableChains, r.tableRules, r.tableSets} {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = read(out)
		}
	}
	if err != nil {
		return nil, tableError(out, err)
	}
	return out, nil
}

// UnknownRule begins the text of a rule that Read does not know.
const UnknownRule = "unknown: "

func (r *reading) tableChains(out *Table) error {
	msgs, err := r.list("chains", unix.NFT_MSG_GETCHAIN)
	for _, m := range msgs {
		c := nft.ParseChain(m)
		out.Chains[c.Name] = &Chain{}
		if c.Hook == "" {
			continue
		}
		out.Chains[c.Name].Hook = fmt.Sprintf("type %s hook %s priority %d", c.Type, c.Hook, c.Priority)
		if c.Drop {
			out.Chains[c.Name].Hook += "; policy drop"
		}
	}
	return err
}

func (r *reading) tableRules(out *Table) error {
	msgs, err := r.list("rules", unix.NFT_MSG_GETRULE)
	for _, m := range msgs {
		c := out.Chains[netlink.Text(netlink.Attr(m[4:], unix.NFTA_RULE_CHAIN))]
		if c == nil {
			return errChanged
		}
		text, err := nft.Text(out.Family, m[4:])
		if err != nil {
			text = UnknownRule + err.Error()
		}
		c.Rules = append(c.Rules, Rule{Text: text, Comment: nft.ParseComment(netlink.Attr(m[4:], unix.NFTA_RULE_USERDATA))})
	}
	return err
}

var errChanged = errors.New("it changed while it was read: try again") // a constant; nothing assigns it

// tableSets reads the sets. Those of a single rule have a name, too. A set of a type that package nft does not know is empty.
func (r *reading) tableSets(out *Table) error {
	msgs, err := r.list("sets", unix.NFT_MSG_GETSET)
	for _, m := range msgs {
		flags := netlink.Uint32BE(netlink.Attr(m[4:], unix.NFTA_SET_FLAGS))
		name, text := nft.ParseSet(m[4:])
		s := &Set{Type: text, Interval: flags&unix.NFT_SET_INTERVAL != 0, Elements: map[string]string{}}
		out.Sets[name] = s
		typ, err := nft.ParseSetType(text)
		if err != nil {
			continue
		}
		e := nft.Elements{Family: out.Family, Table: out.Name, Set: name, Type: typ, Interval: s.Interval}
		list, err := e.Dump(r.p.conn)
		if err != nil {
			return fmt.Errorf("list set %s: %w", name, err)
		}
		values, _ := e.Parse(list)
		for k, v := range values {
			s.Elements[e.KeyText(k)] = v
		}
	}
	return err
}
