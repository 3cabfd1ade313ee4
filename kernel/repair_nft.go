package kernel

import (
	"errors"
	"os"

	"github.com/fairlead/fairlead/kernel/netlink"
)

// rules restores the ruleset in one transaction: missing elements, and missing parts together with their neighbours. An
// element that a live attachment owns by now does not prevent the others.
func (r *repair) rules(list Objects) {
	if len(r.nft) == 0 {
		return
	}
	e := r.engine
	var err error
	e.replaced, err = e.replacedFor(list, r.nft)
	defer func() { e.replaced = replaced{} }()
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

// replaced are parts of a ruleset that a repair adds again. The transaction that adds them deletes the former ones first, so
// that no packet meets a ruleset without them.
type replaced struct {
	rules map[string]map[string]bool // tags of rules by chain, see chainOf
	parts map[*NFT][]netlink.Request // the requests that delete the part, or change it in place
}

// replacedFor returns what to replace for the differences: in each chain, the first rule of the list that differs and those
// that follow it, because the kernel appends rules; all rules of a chain that has another hook; sets and maps that differ.
func (e *Engine) replacedFor(list Objects, differ []Difference) (out replaced, _ error) {
	out = replaced{map[string]map[string]bool{}, map[*NFT][]netlink.Request{}}
	wrong, emptied := map[*NFT]bool{}, map[string]bool{}
	for _, n := range Of[*NFT](objectsOf(differ)) {
		if wrong[n] = true; n.Kind == "rule" {
			continue
		}
		m, err := n.read(e)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		reqs, deletes, err := n.replacement(m)
		if err != nil {
			return out, err
		}
		out.parts[n] = reqs
		if deletes && n.Kind == "chain" {
			emptied[chainOf(n)] = true
		}
	}
	for _, n := range Of[*NFT](list) {
		if n.Kind != "rule" {
			continue
		}
		key := chainOf(n)
		if out.rules[key] == nil && (wrong[n] || emptied[key]) {
			out.rules[key] = map[string]bool{}
		}
		if out.rules[key] != nil {
			out.rules[key][n.Tag()] = true
		}
	}
	return out, nil
}

// has reports whether a rule is to be replaced.
func (r *replaced) has(rule *NFT) bool { return r.rules != nil && r.rules[chainOf(rule)][rule.Tag()] }

// addReplaced adds the requests that delete what the transaction replaces. Only a repair replaces something.
func (e *Engine) addReplaced(b *transaction, list []inRuleset) error {
	if e.replaced.rules == nil {
		return nil
	}
	parts, listed := partsOf(list), map[string]bool{}
	for _, n := range parts {
		key := chainOf(n)
		tags := e.replaced.rules[key]
		if n.Kind != "rule" || tags == nil || listed[key] {
			continue
		}
		listed[key] = true
		reqs, err := e.ruleDeletions(n.Family, n.Table, n.Name, func(comment string) bool { return tags[comment] })
		if err != nil {
			return err
		}
		b.addAll(n, reqs)
	}
	for _, n := range parts {
		b.addAll(n, e.replaced.parts[n])
	}
	return nil
}
