package compat

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// difference is a deliberate difference.
type difference struct {
	what, reference, fairlead, why string

	shows  []shown
	chance bool   // it does not appear every time
	always bool   // it may appear in any case, so a case's outcome does not mention it
	proof  *proof // of a difference that no transcript shows
}

// shown is a place in transcripts that shows a difference, and what each implementation has there. Everything else in
// the step must be equal.
type shown struct {
	cases, steps        *regexp.Regexp // names and titles
	part                *regexp.Regexp // of the step's text: the group, or else the whole match
	reference, fairlead *regexp.Regexp // all parts, one per line
	seen                *atomic.Bool
}

// show returns a place that shows a difference. The expected values match whole texts.
func show(cases, steps, part, reference, fairlead string) shown {
	whole := func(s string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + s + `)$`) }
	return shown{regexp.MustCompile(cases), regexp.MustCompile(steps), regexp.MustCompile(`(?m)` + part), whole(reference), whole(fairlead), &atomic.Bool{}}
}

// in reports whether the place is in a step of a case.
func (s shown) in(name, step string) bool {
	return s.cases.MatchString(name) && s.steps.MatchString(step)
}

// shownIn reports whether a case may show the difference.
func (d difference) shownIn(name string) bool {
	return slices.ContainsFunc(d.shows, func(s shown) bool { return s.cases.MatchString(name) })
}

// byChance reports whether a case may show a difference that does not appear every time.
func (p *page) byChance(name string) bool {
	return slices.ContainsFunc(p.differences, func(d difference) bool { return d.chance && d.shownIn(name) })
}

// removeDifferences removes the parts that show deliberate differences from both texts of a step, and records which
// differences it found. Parts with other values than the expected ones stay.
func (p *page) removeDifferences(name, step, want, have string, found map[int]bool) (string, string) {
	for i, d := range p.differences {
		for _, s := range d.shows {
			if !s.in(name, step) {
				continue
			}
			a, inA := cut(want, s.part)
			b, inB := cut(have, s.part)
			if inA != inB && s.reference.MatchString(inA) && s.fairlead.MatchString(inB) {
				s.seen.Store(true)
				found[i] = true
				want, have = a, b
			}
		}
	}
	return want, have
}

// outcome returns the outcome of a case without problems: equal, except for differences. It omits differences that may
// appear in any case, and always lists those that appear by chance.
func (p *page) outcome(name string, found map[int]bool) string {
	var notes []string
	for i, d := range p.differences {
		if !d.always && (found[i] || d.chance && d.shownIn(name)) {
			notes = append(notes, strconv.Itoa(i+1))
		}
	}
	if len(notes) == 0 {
		return "equal"
	}
	return "equal" + exceptFor + strings.Join(notes, ", ")
}

// cut removes the parts that a pattern matches, and returns them as lines. Lines that are empty then are removed, too.
func cut(text string, part *regexp.Regexp) (rest, parts string) {
	var b strings.Builder
	var list []string
	end := 0
	for _, m := range part.FindAllStringSubmatchIndex(text, -1) {
		from, to := m[0], m[1]
		if len(m) > 2 {
			from, to = m[2], m[3]
		}
		if from < 0 { // the group is optional
			continue
		}
		list = append(list, text[from:to])
		b.WriteString(text[end:from])
		end = to
	}
	b.WriteString(text[end:])
	lines := slices.DeleteFunc(strings.Split(b.String(), "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
	return strings.Join(lines, "\n"), strings.Join(list, "\n")
}
