package doctor

import (
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nft"
)

// end is what became of a packet in a chain.
type end struct {
	verdict string // "accept", "drop", "nat"; "": it went on
	sure    bool   // false: something before may have decided otherwise
	chain   *nft.Chain
	rule    *nft.Rule // nil: the policy
}

// walk takes a packet through a chain, and those that it jumps to.
func walk(r *nft.Ruleset, c *nft.Chain, p packet, depth int) end {
	sure := true
	for i := range c.Rules {
		rule := &c.Rules[i]
		match, act := try(rule, p, r.Sets)
		if match == no || act.Verdict == "" {
			continue
		}
		at := end{act.Verdict, sure && match == yes, c, rule}
		switch act.Verdict {
		case "return":
			if match == yes {
				return end{sure: sure}
			}
			sure = false
		case "jump", "goto":
			at = jump(r, c, act, p, depth)
			at.sure = at.sure && sure
			if match == yes && (at.verdict != "" || act.Verdict == "goto") {
				return at
			}
			// What may have ended there may have ended otherwise than what follows says.
			sure = sure && at.sure && (match == yes || at.verdict == "")
		case "queue":
			sure = false
			if match == yes {
				return end{"accept", false, c, rule}
			}
		default:
			if match == yes {
				return at
			}
			sure = false
		}
	}
	return end{sure: sure}
}

const deepest = 16 // jumps, as the kernel has it

func jump(r *nft.Ruleset, c *nft.Chain, act nft.Step, p packet, depth int) end {
	to := r.Chain(c, act.Chain)
	if to == nil || depth >= deepest {
		return end{sure: false}
	}
	return walk(r, to, p, depth+1)
}

// try tells whether a rule's comparisons are true of the packet, and what it then does.
func try(rule *nft.Rule, p packet, sets map[string]*nft.Set) (answer, nft.Step) {
	all := yes
	for _, s := range rule.Steps {
		if s.Field == "" {
			return all, s
		}
		got, then := p.compare(s, sets)
		if got == no {
			return no, nft.Step{}
		}
		all = min(all, got)
		if s.Map {
			if got == maybe {
				then = nft.Step{Verdict: "queue"} // whatever is in there
			}
			return all, then
		}
	}
	return all, nft.Step{}
}

// pass takes a packet through the base chains of a hook, all of which have to let it
// through. It returns where it surely ends, or nil.
func pass(r *nft.Ruleset, hook string, p packet) *end {
	for _, c := range r.Base(hook, p.family()) {
		if c.Type != "filter" || c.Table == kernel.Table {
			continue
		}
		at := walk(r, c, p, 0)
		if at.verdict == "" && c.Drop {
			at = end{"drop", at.sure, c, nil}
		}
		if at.verdict == "drop" && at.sure {
			return &at
		}
	}
	return nil
}
