package kernel

import (
	"errors"
	"os"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// LinkRules returns the comments of the rules in chains of table inet fairlead that match a link by its name, by that name.
func (e *Engine) LinkRules(chains ...string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, chain := range chains {
		rules, err := e.NFTRules("inet", Table, chain)
		if netlink.IsAbsent(err) || lacksSubsystem(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			for _, s := range nft.ParseRule(r.attrs, &nft.Chain{Family: "inet", Table: Table, Name: chain}).Steps {
				if s.Field == "iifname" || s.Field == "oifname" {
					name := netlink.Text(s.Value)
					out[name] = append(out[name], r.Comment)
					break
				}
			}
		}
	}
	return out, nil
}

// RemoveRules removes shared rules in one transaction. A rule that is gone already is success.
func (e *Engine) RemoveRules(rules []*NFT) error {
	var reqs []netlink.Request
	for _, n := range rules {
		more, err := e.ruleDeletions(n.Family, n.Table, n.Name, func(comment string) bool { return comment == n.Tag() })
		if err != nil {
			return err
		}
		reqs = append(reqs, more...)
	}
	if len(reqs) == 0 {
		return nil
	}
	err := e.nftTransaction(reqs)
	if errors.Is(err, os.ErrNotExist) { // somebody else removed one meanwhile
		return nil
	}
	return err
}
