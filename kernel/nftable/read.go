package nftable

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// reading is the kernel's table, and what differs from the desired one.
type reading struct {
	p       *Programmer
	desired *state

	have    *state
	exists  bool
	dormant bool
	copied  bool     // the second table exists, see replace
	replace bool     // something differs that the kernel cannot change in place
	found   []string // what differs

	used map[string]bool // sets that rules search, by nft.SetName
}

// otherRules stands for rules that differ from the desired ones.
const otherRules = "unknown"

func (p *Programmer) read(ctx context.Context, desired *state) (*reading, error) {
	r := &reading{p: p, desired: desired, have: &state{sets: map[string]*set{}, chains: map[string]*Chain{}}, used: map[string]bool{}}
	if _, err := p.get(desired.second().table()); err == nil {
		r.copied = true
		r.differs("the table %s is left from an interrupted change", desired.name+copySuffix)
	}
	m, err := p.get(desired.table())
	if errors.Is(err, os.ErrNotExist) {
		r.differs("the table does not exist")
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	r.exists = true
	if d := desired.table().Differs(m); len(d) > 0 {
		r.dormant = true
		r.differs("the table %s", d[0])
	}
	for _, read := range []func(context.Context) error{r.chains, r.rules, r.sets} {
		err := ctx.Err()
		if err == nil {
			err = read(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	r.missing()
	return r, nil
}

func (r *reading) differs(format string, args ...any) {
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

// get returns the kernel's message about a part.
func (p *Programmer) get(x nft.Part) ([]byte, error) {
	resp, err := p.conn.Do([]netlink.Request{x.Get()})
	if err == nil {
		err = resp[0].Err
	}
	if err == nil && len(resp[0].Messages) == 0 {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return resp[0].Messages[0], nil
}

// list returns the messages about the table's parts of one kind. Not every kernel looks at the table's name in the
// request.
func (r *reading) list(what string, msg uint16) (out [][]byte, err error) {
	const tableAttr = unix.NFTA_CHAIN_TABLE // also NFTA_RULE_TABLE and NFTA_SET_TABLE
	b := nft.Message(r.desired.family)
	b.String(tableAttr, r.desired.name)
	msgs, err := r.p.conn.Dump(netlink.Request{Type: nft.Subsystem | msg, Body: b})
	if err != nil {
		return nil, fmt.Errorf("list the %s: %w", what, err)
	}
	for _, m := range msgs {
		if len(m) > 4 && netlink.Text(netlink.Attr(m[4:], tableAttr)) == r.desired.name {
			out = append(out, m)
		}
	}
	return out, nil
}

func (r *reading) chains(context.Context) error {
	msgs, err := r.list("chains", unix.NFT_MSG_GETCHAIN)
	for _, m := range msgs {
		c := nft.ParseChain(m)
		want := r.desired.chains[c.Name]
		have := &Chain{Hook: c.Hook}
		r.have.chains[c.Name] = have
		if want == nil {
			r.differs("chain %s is not in the desired table", c.Name)
			continue
		}
		if d := r.desired.chain(c.Name, want.Hook).Differs(m); len(d) > 0 {
			r.replace = true
			r.differs("chain %s: %s", c.Name, d[0])
		}
		have.Hook = want.Hook
	}
	return err
}

// rules compares the rules of the chains that are wanted.
func (r *reading) rules(context.Context) error {
	msgs, err := r.list("rules", unix.NFT_MSG_GETRULE)
	if err != nil {
		return err
	}
	listed := map[string][][]byte{}
	for _, m := range msgs {
		chain := netlink.Text(netlink.Attr(m[4:], unix.NFTA_RULE_CHAIN))
		listed[chain] = append(listed[chain], m[4:])
		for _, step := range nft.ParseRule(m[4:], &nft.Chain{Family: r.desired.family, Table: r.desired.name}).Steps {
			r.used[step.Set] = true
		}
	}
	for _, name := range names(r.have.chains, nil) {
		have, want := r.have.chains[name], r.desired.chains[name]
		if want == nil {
			continue
		}
		d, err := r.compareRules(listed[name], want.Rules)
		if err != nil {
			return fmt.Errorf("chain %s: %w", name, err)
		}
		have.Rules = want.Rules
		if d != "" {
			have.Rules = []Rule{{Text: otherRules}}
			r.differs("chain %s: %s", name, d)
		}
	}
	return nil
}

// compareRules returns what differs, or "".
func (r *reading) compareRules(have [][]byte, want []Rule) (string, error) {
	if len(have) != len(want) {
		return fmt.Sprintf("has %d rules, want %d", len(have), len(want)), nil
	}
	for i, x := range want {
		exprs, err := nft.Compile(nft.FamilyNumber(r.desired.family), x.Text)
		if err != nil {
			return "", err
		}
		if !nft.SameRule(have[i], exprs) {
			return fmt.Sprintf("rule %d is not %q", i+1, x.Text), nil
		}
		if c := nft.ParseComment(netlink.Attr(have[i], unix.NFTA_RULE_USERDATA)); c != x.Comment {
			return fmt.Sprintf("rule %d has the comment %q, want %q", i+1, c, x.Comment), nil
		}
	}
	return "", nil
}

// missing reports wanted parts that do not exist.
func (r *reading) missing() {
	for _, name := range names(r.desired.chains, nil) {
		if r.have.chains[name] == nil {
			r.differs("chain %s does not exist", name)
		}
	}
	for _, name := range names(r.desired.sets, nil) {
		if r.have.sets[name] == nil {
			r.differs("set %s does not exist", name)
		}
	}
}
