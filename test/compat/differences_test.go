package compat

import (
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
)

// difference is a deliberate difference. The lines that show it are not compared.
type difference struct {
	what, reference, fairlead, why string

	cases  *regexp.Regexp // names; nil: no transcript shows it
	steps  *regexp.Regexp // titles
	lines  *regexp.Regexp
	chance bool // it does not appear every time
	seen   *atomic.Bool
}

// removeDifferences removes the lines of deliberate differences from both texts of a step, and records which
// differences it found.
func (p *page) removeDifferences(name, step, want, have string, found map[int]bool) (string, string) {
	for i, d := range p.differences {
		if d.cases == nil || !d.cases.MatchString(name) || !d.steps.MatchString(step) {
			continue
		}
		a, inA := splitLines(want, d.lines)
		b, inB := splitLines(have, d.lines)
		if inA != inB {
			d.seen.Store(true)
			found[i] = true
		}
		want, have = a, b
	}
	return want, have
}

// outcome returns the outcome of a case without problems: equal, except for differences. It omits differences that may
// appear in any case, and always lists those that appear by chance.
func (p *page) outcome(name string, found map[int]bool) string {
	var notes []string
	for i, d := range p.differences {
		if d.cases != nil && d.cases.String() != "" && (found[i] || d.chance && d.cases.MatchString(name)) {
			notes = append(notes, strconv.Itoa(i+1))
		}
	}
	if len(notes) == 0 {
		return "equal"
	}
	return "equal" + exceptFor + strings.Join(notes, ", ")
}

// splitLines splits a text into the lines that do not match and those that do.
func splitLines(text string, lines *regexp.Regexp) (rest, matched string) {
	var keep, out []string
	for _, l := range strings.Split(text, "\n") {
		if lines.MatchString(l) {
			out = append(out, l)
		} else {
			keep = append(keep, l)
		}
	}
	return strings.Join(keep, "\n"), strings.Join(out, "\n")
}
