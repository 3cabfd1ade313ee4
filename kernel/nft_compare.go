package kernel

import (
	"errors"
	"fmt"
	"os"

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
	r, err := e.RequestNFT(n.part().Get())
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
	want, err := n.AddRequest()
	if err != nil {
		return nil, err
	}
	if !nft.SameRule(have[0].attrs, want.Body[4:]) {
		return []string{"has other statements"}, nil
	}
	return nil, nil
}

// existing returns the rules of the chain that have the rule's tag.
func (n *NFT) existing(e *Engine) (out []NFTRule, err error) {
	have, err := e.rulesLike(n)
	for _, r := range have {
		if r.Chain == n.Name && r.Comment == n.Tag() {
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
	if SameContainer(have.Comment, x.OwnerTag) {
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

// replaceDifferent deletes the parts of a ruleset that exist and differ, so that they are added again, or changes them
// where the kernel can. Rules are handled elsewhere, see clearRulesAfter.
func (e *Engine) replaceDifferent(list []Difference) error {
	var reqs []netlink.Request
	for _, d := range list {
		n, ok := d.Object.(*NFT)
		if !ok || n.Kind == "rule" {
			continue
		}
		m, err := n.read(e)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		some, err := n.replacement(m)
		if err != nil {
			return err
		}
		reqs = append(reqs, some...)
	}
	if len(reqs) == 0 {
		return nil
	}
	return e.nftTransaction(reqs)
}

// replacement returns the requests that change the part in place, or else delete it. Deleting a chain deletes its rules.
func (n *NFT) replacement(m []byte) ([]netlink.Request, error) {
	update, err := n.AddRequest()
	if err != nil {
		return nil, err
	}
	if n.Kind == "table" || n.Kind == "chain" && nft.ParseChain(m).SameHook(nft.ParseChain(update.Body)) {
		return []netlink.Request{update}, nil
	}
	gone := n.part().Delete(nil)
	if n.Kind != "chain" {
		return []netlink.Request{gone}, nil
	}
	rules := nft.Message(n.Family)
	rules.String(unix.NFTA_RULE_TABLE, n.Table)
	rules.String(unix.NFTA_RULE_CHAIN, n.Name)
	return []netlink.Request{{Type: nft.Subsystem | unix.NFT_MSG_DELRULE, Flags: unix.NLM_F_ACK, Body: rules}, gone}, nil
}
