package compat

import (
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
)

// difference is one that we want. Lines that show it are not compared.
type difference struct {
	what, theirs, ours, why string

	cases  *regexp.Regexp // names; nil: it shows in no transcript
	steps  *regexp.Regexp // titles
	lines  *regexp.Regexp
	chance bool // it does not show every time
	seen   *atomic.Bool
}

// forget takes the lines of wanted differences out of both texts of a step, and
// notes those that it met.
func (p *page) forget(name, step, want, have string, met map[int]bool) (string, string) {
	for i, d := range p.differences {
		if d.cases == nil || !d.cases.MatchString(name) || !d.steps.MatchString(step) {
			continue
		}
		a, inA := cut(want, d.lines)
		b, inB := cut(have, d.lines)
		if inA != inB {
			d.seen.Store(true)
			met[i] = true
		}
		want, have = a, b
	}
	return want, have
}

// words are the outcome of a case without problems: equal, but for differences.
// One that may show in any case is not worth a word, one that shows by chance
// always is.
func (p *page) words(name string, met map[int]bool) string {
	var notes []string
	for i, d := range p.differences {
		if d.cases != nil && d.cases.String() != "" && (met[i] || d.chance && d.cases.MatchString(name)) {
			notes = append(notes, strconv.Itoa(i+1))
		}
	}
	if len(notes) == 0 {
		return "equal"
	}
	return butFor + strings.Join(notes, ", ")
}

// cut parts a text into the lines that do not match and those that do.
func cut(text string, lines *regexp.Regexp) (rest, matched string) {
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
