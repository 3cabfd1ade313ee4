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
	err := e.replaceDifferent(r.nft)
	if err == nil {
		err = e.clearRulesAfter(list, r.nft)
	}
	refused := map[Object]error{}
	for err == nil {
		e.nft = nil
		for _, n := range Of[*NFT](list) {
			e.nft = append(e.nft, n)
		}
		for _, x := range Of[*Element](objectsOf(r.nft)) {
			if refused[x] == nil {
				e.nft = append(e.nft, x)
			}
		}
		err = e.commit()
		o, ok := errors.AsType[*ObjectError](err)
		if !ok || len(Of[*Element](Objects{o.Object})) == 0 || refused[o.Object] != nil {
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
	for _, f := range Of[*ConntrackFlows](list) {
		if err := f.endFormer(e); err != nil {
			r.out = append(r.out, RepairResult{Difference{Object: f, What: []string{"went to another target"}}, err})
		}
	}
}

func objectsOf(list []Difference) (out Objects) {
	for _, d := range list {
		out = append(out, d.Object)
	}
	return out
}

// clearRulesAfter deletes the first rule of a chain that differs and the rules that follow it, so that all are added
// again in order.
func (e *Engine) clearRulesAfter(list Objects, differ []Difference) error {
	wrong := map[*NFT]bool{}
	for _, n := range Of[*NFT](objectsOf(differ)) {
		wrong[n] = true
	}
	after := map[string]map[string]bool{} // by chain: comments of rules to add again
	chain := map[string]*NFT{}
	for _, n := range Of[*NFT](list) {
		if n.Kind != "rule" {
			continue
		}
		key := chainOf(n)
		if wrong[n] && after[key] == nil {
			after[key], chain[key] = map[string]bool{}, n
		}
		if after[key] != nil {
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
	err := e.deleteRules(n.Family, n.Table, n.Name, func(comment string) bool { return tags[comment] })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reorder the rules of %s: %w", chainOf(n), err)
	}
	return nil
}
