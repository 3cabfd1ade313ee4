package nftable

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// The steps of a change. What new chains, sets and elements need exists before them, and nothing is deleted that is
// still in use.
const (
	deleteTable = iota // only to replace everything in one transaction

	// Nothing refers to what these steps change, so no packet meets it.
	addTable
	deleteUnused
	newSets
	newChains
	newElements
	newRules
	newVerdicts

	// The switch: these steps decide about packets, and need one transaction.
	flushChains
	deleteElements
	newBaseChains
	addElements
	addRules
	addVerdicts
	deleteBaseChains

	// Nothing refers any more to what these steps delete.
	flushOldChains
	flushOldSets
	deleteChains
	deleteSets
	stepCount
)

// plan is the requests that change one state to another.
type plan struct {
	state   *state // the desired one
	steps   [stepCount][]request
	replace bool // something differs that the kernel cannot change in place
	err     error

	newIntervals bool // there is a new set of intervals
}

// request is a netlink request with the name of its object, for errors.
type request struct {
	netlink.Request
	what string
}

func (p *plan) add(step int, what string, r netlink.Request, err error) {
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s: %w", what, err)
	}
	p.steps[step] = append(p.steps[step], request{r, what})
}

func (p *plan) newTable() {
	r, err := p.state.table().Add()
	p.add(addTable, "table", r, err)
}

// changes adds everything that differs.
func (p *plan) changes(have *state) {
	for _, name := range names(have.sets, p.state.sets) {
		p.set(have.sets[name], p.state.sets[name])
	}
	for _, name := range names(have.chains, p.state.chains) {
		p.chain(name, have.chains[name], p.state.chains[name])
	}
}

// names returns the keys of two maps, sorted.
func names[V any](a, b map[string]V) (out []string) {
	for name := range a {
		out = append(out, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// set changes one set to another. Either may be nil.
func (p *plan) set(have, want *set) {
	switch {
	case have == nil && want == nil:
	case want == nil:
		p.add(flushOldSets, "elements of "+have.Set, have.Flush(), nil)
		p.add(deleteSets, "set "+have.Set, have.part().Delete(nil), nil)
	case have == nil:
		p.newSet(want)
	case have.unused && !have.equal(want):
		p.add(deleteUnused, "delete set "+have.Set, have.part().Delete(nil), nil)
		p.newSet(want)
	case !have.sameType(want):
		p.replace = true
	case have.irregular:
		p.add(deleteElements, "elements of "+have.Set, have.Flush(), nil)
		p.addElements(want, want.values, addElements, addVerdicts)
	default:
		p.elements(want, have.values, want.values)
	}
}

func (p *plan) newSet(s *set) {
	r, err := s.part().Add()
	p.add(newSets, "set "+s.Set, r, err)
	p.newIntervals = p.newIntervals || s.Interval
	p.addElements(s, s.values, newElements, newVerdicts)
}

// elements changes elements of a set that exists. A key with another value is deleted and added.
func (p *plan) elements(s *set, have, want map[string]string) {
	var gone []string
	for k, v := range have {
		if w, ok := want[k]; !ok || v != w {
			gone = append(gone, k)
		}
	}
	missing := map[string]string{}
	for k, w := range want {
		if v, ok := have[k]; !ok || v != w {
			missing[k] = w
		}
	}
	for _, r := range s.Delete(gone) {
		p.add(deleteElements, "delete elements of "+s.Set, r, nil)
	}
	p.addElements(s, missing, addElements, addVerdicts)
}

func (p *plan) addElements(s *set, values map[string]string, step, verdictStep int) {
	if s.Type.Verdict {
		step = verdictStep
	}
	reqs, err := s.Add(values)
	for _, r := range reqs {
		p.add(step, "elements of "+s.Set, r, err)
	}
}

// chain changes one chain to another. Either may be nil. A chain whose rules differ is flushed and filled again.
func (p *plan) chain(name string, have, want *Chain) {
	switch {
	case have == nil && want == nil:
	case want == nil && have.Hook != "":
		p.deleteChain(name, flushChains, deleteBaseChains)
	case want == nil:
		p.deleteChain(name, flushOldChains, deleteChains)
	case have == nil && want.Hook != "":
		p.newChain(name, want, newBaseChains, addRules)
	case have == nil:
		p.newChain(name, want, newChains, newRules)
	case have.Hook != want.Hook:
		p.replace = true
	case !slices.Equal(have.Rules, want.Rules):
		p.add(flushChains, "rules of "+name, p.flush(name), nil)
		p.rules(name, want.Rules, addRules)
	}
}

func (p *plan) newChain(name string, c *Chain, step, rules int) {
	r, err := p.state.chain(name, c.Hook).Add()
	p.add(step, "chain "+name, r, err)
	p.rules(name, c.Rules, rules)
}

func (p *plan) rules(chain string, rules []Rule, step int) {
	for _, x := range rules {
		r, err := p.state.rule(chain, x).Add()
		p.add(step, "chain "+chain+": rule "+x.Text, r, err)
	}
}

func (p *plan) deleteChain(name string, flush, step int) {
	p.add(flush, "rules of "+name, p.flush(name), nil)
	p.add(step, "delete chain "+name, p.state.chain(name, "").Delete(nil), nil)
}

// flush returns the request that deletes all rules of a chain.
func (p *plan) flush(chain string) netlink.Request {
	b := nft.Message(p.state.family)
	b.String(unix.NFTA_RULE_TABLE, p.state.name)
	b.String(unix.NFTA_RULE_CHAIN, chain)
	return netlink.Request{Type: nft.Subsystem | unix.NFT_MSG_DELRULE, Body: b}
}
