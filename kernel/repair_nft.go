package kernel

import (
	"errors"
	"fmt"
	"os"
)

// rules restores the ruleset in one transaction: missing elements, and missing parts together with their neighbours. An
// element that a live attachment owns by now does not prevent the others.
func (r *repair) rules(list Objects) {
	if len(r.nft) == 0 {
		return
	}
	e := r.engine
	err := e.clearRulesAfter(list, r.nft)
	refused := map[Object]error{}
	for err == nil {
		e.nft = nil
		for _, o := range list {
			if _, ok := o.(*NFT); ok {
				e.nft = append(e.nft, o)
			}
		}
		for _, d := range r.nft {
			if _, ok := d.Object.(*Element); ok && refused[d.Object] == nil {
				e.nft = append(e.nft, d.Object)
			}
		}
		err = e.commit()
		o, ok := errors.AsType[*ObjectError](err)
		if !ok {
			break
		}
		if _, element := o.Object.(*Element); !element || refused[o.Object] != nil {
			break
		}
		refused[o.Object], err = err, nil
	}
	for _, d := range r.nft {
		e := err
		if refused[d.Object] != nil {
			e = refused[d.Object]
		}
		r.out = append(r.out, RepairResult{d, e})
	}
	if err == nil {
		r.flows(list)
	}
}

// flows deletes connection-tracking entries that were created while host ports were not mapped.
func (r *repair) flows(list Objects) {
	e := r.engine
	for _, o := range list {
		if f, ok := o.(*ConntrackFlows); ok {
			if err := f.endFormer(e); err != nil {
				r.out = append(r.out, RepairResult{Difference{f, []string{"went to another target"}}, err})
			}
		}
	}
}

// clearRulesAfter deletes the rules that follow the first missing rule of their chain, so that they are added again
// behind it.
func (e *Engine) clearRulesAfter(list Objects, missing []Difference) error {
	gone := map[*NFT]bool{}
	for _, d := range missing {
		if n, ok := d.Object.(*NFT); ok && n.Kind == "rule" {
			gone[n] = true
		}
	}
	after := map[string]map[string]bool{} // by chain: comments of rules to add again
	chain := map[string]*NFT{}
	for _, o := range list {
		n, ok := o.(*NFT)
		if !ok || n.Kind != "rule" {
			continue
		}
		key := chainOf(n)
		switch {
		case gone[n] && after[key] == nil:
			after[key], chain[key] = map[string]bool{}, n
		case !gone[n] && after[key] != nil:
			after[key][n.Tag()] = true
		}
	}
	for key, tags := range after {
		if err := e.deleteTaggedRules(chain[key], tags); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) deleteTaggedRules(n *NFT, tags map[string]bool) error {
	if len(tags) == 0 {
		return nil
	}
	err := e.deleteRules(n.Family, n.Table, n.Name, func(comment string) bool { return tags[comment] })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reorder the rules of %s: %w", chainOf(n), err)
	}
	return nil
}
