package doctor

import (
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nft"
)

// end is the outcome of a packet in a chain.
type end struct {
	verdict string // "accept", "drop" or "nat"; "" if the packet continues
	certain bool   // false if an earlier rule may have decided otherwise
	chain   *nft.Chain
	rule    *nft.Rule // nil if the policy decided
}

// walk evaluates a packet in a chain and in the chains that it jumps to.
func walk(r *nft.Ruleset, c *nft.Chain, p packet, depth int) end {
	certain := true
	for i := range c.Rules {
		rule := &c.Rules[i]
		match, act := try(rule, p, r.Sets)
		if match == no || act.Verdict == "" {
			continue
		}
		at := end{act.Verdict, certain && match == yes, c, rule}
		switch act.Verdict {
		case "return":
			if match == yes {
				return end{certain: certain}
			}
			certain = false
		case "jump", "goto":
			at = jump(r, c, act, p, depth)
			at.certain = at.certain && certain
			if match == yes && (at.verdict != "" || act.Verdict == "goto") {
				return at
			}
			// A packet that may have ended in the jumped-to chain makes all later outcomes uncertain.
			certain = certain && at.certain && (match == yes || at.verdict == "")
		case "queue":
			certain = false
			if match == yes {
				return end{"accept", false, c, rule}
			}
		default:
			if match == yes {
				return at
			}
			certain = false
		}
	}
	return end{certain: certain}
}

const deepest = 16 // the kernel's limit of jumps

func jump(r *nft.Ruleset, c *nft.Chain, act nft.Step, p packet, depth int) end {
	to := r.Chain(c, act.Chain)
	if to == nil || depth >= deepest {
		return end{certain: false}
	}
	return walk(r, to, p, depth+1)
}

// try reports whether a rule matches the packet, and the rule's verdict.
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
				then = nft.Step{Verdict: "queue"} // the verdict is unknown
			}
			return all, then
		}
	}
	return all, nft.Step{}
}

// pass evaluates the packet in all base chains of a hook; each one must accept it. It returns where the packet
// certainly ends, or nil.
func pass(r *nft.Ruleset, hook string, p packet) *end {
	for _, c := range r.Base(hook, p.family()) {
		if c.Type != "filter" || c.Table == kernel.Table {
			continue
		}
		at := walk(r, c, p, 0)
		if at.verdict == "" && c.Drop {
			at = end{"drop", at.certain, c, nil}
		}
		if at.verdict == "drop" && at.certain {
			return &at
		}
	}
	return nil
}
