package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

func (n *NFT) diff(e *Engine) ([]string, error) {
	if n.Kind == "rule" {
		return n.diffRule(e)
	}
	m, err := n.read(e)
	if err != nil {
		return nil, err
	}
	return n.part().Differs(m), nil
}

// read returns the kernel's message about a table, chain, set or map, or os.ErrNotExist.
func (n *NFT) read(e *Engine) ([]byte, error) {
	get, err := n.query()
	if err != nil {
		return nil, err
	}
	r, err := e.ReadNFT(get)
	if err != nil {
		return nil, err
	}
	if len(r.Messages) == 0 {
		return nil, os.ErrNotExist
	}
	return r.Messages[0], nil
}

func (n *NFT) diffRule(e *Engine) ([]string, error) {
	have, err := n.existing(e)
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		return nil, os.ErrNotExist
	}
	want, err := nft.Compile(nft.FamilyNumber(n.Family), n.Text)
	if err != nil {
		return nil, err
	}
	if !nft.SameRule(have[0].attrs, want) {
		return []string{"has other statements"}, nil
	}
	return nil, nil
}

// nftQuery is a request for one part of a ruleset.
type nftQuery struct {
	typ  uint16
	body string
}

// inOneWrite is the number of requests whose replies fit the smallest receive buffer (net.core.rmem_default).
const inOneWrite = 24

// readRulesets reads the parts of rulesets in a list before they are compared, many with one write.
func (e *Engine) readRulesets(list Objects) {
	var reqs []netlink.Request
	for _, o := range list {
		if x, ok := o.(interface {
			query() (netlink.Request, error)
		}); ok {
			// A part that cannot be encoded is reported when it is compared.
			r, err := x.query()
			if _, known := e.readAhead(r); err == nil && !known {
				reqs = append(reqs, r)
			}
		}
	}
	for some := range slices.Chunk(reqs, inOneWrite) {
		c, err := e.Netfilter()
		if err != nil {
			return // diff reports it
		}
		resp, err := c.Do(some)
		if err != nil {
			return
		}
		for i, r := range some {
			e.snapshot.nft[nftQuery{r.Type, string(r.Body)}] = resp[i]
		}
	}
}

// readAhead returns the reply that the comparison has already read.
func (e *Engine) readAhead(r netlink.Request) (resp netlink.Response, ok bool) {
	if e.snapshot != nil {
		resp, ok = e.snapshot.nft[nftQuery{r.Type, string(r.Body)}]
	}
	return resp, ok
}

// query returns the request that reads the part. A rule cannot be read alone.
func (n *NFT) query() (netlink.Request, error) {
	if n.Kind == "rule" {
		return netlink.Request{}, errors.ErrUnsupported
	}
	return n.part().Get(), nil
}

func (x *Element) query() (netlink.Request, error) { return x.Wire().Get() }

// existing returns the rules of the chain that have the rule's tag.
func (n *NFT) existing(e *Engine) (out []NFTRule, err error) {
	have, err := e.rulesLike(n)
	tag := n.Tag()
	for _, r := range have {
		if r.Chain == n.Name && r.Comment == tag {
			out = append(out, r)
		}
	}
	return out, err
}

// rulesLike lists the rules of a rule's chain or, in our table, of the whole table, which a Compare then reads once.
func (e *Engine) rulesLike(n *NFT) ([]NFTRule, error) {
	list := *n
	if list.Name = ""; n.Table != Table || e.snapshot == nil {
		list.Name = n.Name
	}
	key := nft.SetName(n.Family, n.Table, list.Name)
	return readOnce(e, key, func() ([]NFTRule, error) { return e.NFTRules(n.Family, n.Table, list.Name) })
}

func (x *Element) diff(e *Engine) ([]string, error) {
	have, err := e.element(x)
	if err != nil {
		return nil, err
	}
	if e.options.sameContainer(have.Comment, x.OwnerTag) {
		return nil, nil // see evict
	}
	var d []string
	if have.Comment != x.OwnerTag {
		d = []string{fmt.Sprintf("belongs to %q", have.Comment)}
	}
	t, err := nft.ParseSetType(x.Type)
	if err != nil || x.Value == "" {
		return d, err
	}
	return append(d, unequal("value", t.Data.Format(have.Data), x.Value)...), nil
}

// replacement returns the requests that change the part in place, or else delete it, a chain with its rules.
func (n *NFT) replacement(m []byte) (reqs []netlink.Request, deletes bool, _ error) {
	update, err := n.AddRequest()
	if err != nil {
		return nil, false, err
	}
	if n.Kind == "table" || n.Kind == "chain" && nft.ParseChain(m).SameHook(nft.ParseChain(update.Body)) {
		return []netlink.Request{update}, false, nil
	}
	gone := n.part().Delete(nil)
	if n.Kind != "chain" {
		return []netlink.Request{gone}, true, nil
	}
	rules := nft.Message(n.Family)
	rules.String(unix.NFTA_RULE_TABLE, n.Table)
	rules.String(unix.NFTA_RULE_CHAIN, n.Name)
	return []netlink.Request{{Type: nft.Subsystem | unix.NFT_MSG_DELRULE, Flags: unix.NLM_F_ACK, Body: rules}, gone}, true, nil
}
