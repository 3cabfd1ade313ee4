// Package leanregexp tells whether a string matches a regular expression of the
// common syntax (RE2's, without flags, Unicode classes and word boundaries). A
// plugin's process lives for milliseconds: package regexp, which brings Unicode's
// tables, costs each start 0.04 ms, for a file that few hosts have.
package leanregexp

import (
	"fmt"
	"unicode/utf8"
)

// Regexp is a compiled expression: a nondeterministic automaton.
type Regexp struct {
	prog  []inst
	start int
}

type op uint8

const (
	opClass op = iota // a character of set, then next
	opSplit           // both next and other
	opBegin           // at the beginning of the text
	opEnd
	opMatch
)

type inst struct {
	op          op
	next, other int
	set         set
}

// set is a set of characters: ranges of both ends, or what is in none of them.
type set struct {
	ranges []rune
	not    bool
}

func (s set) has(c rune) bool {
	for i := 0; i+1 < len(s.ranges); i += 2 {
		if s.ranges[i] <= c && c <= s.ranges[i+1] {
			return !s.not
		}
	}
	return s.not
}

// Compile reads an expression. What it does not know is an error that says so.
func Compile(expr string) (*Regexp, error) {
	p := &parser{rest: expr}
	n, err := p.alternatives()
	if err == nil && p.rest != "" {
		err = fmt.Errorf("unexpected %q", p.rest[:1])
	}
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", expr, err)
	}
	re := &Regexp{}
	re.prog = append(re.prog, inst{op: opMatch})
	re.start = n.emit(re, 0)
	if len(re.prog) > maxProgram {
		return nil, fmt.Errorf("regular expression %q: too large", expr)
	}
	return re, nil
}

// maxProgram bounds what counted repetitions may grow to.
const maxProgram = 10000

// MatchString tells whether a part of s matches.
func (re *Regexp) MatchString(s string) bool {
	now, later := re.empty(), re.empty()
	for at := 0; ; {
		if re.follow(now, re.start, at == 0, at == len(s)) {
			return true
		}
		if at == len(s) {
			return false
		}
		c, size := utf8.DecodeRuneInString(s[at:])
		at += size
		for _, i := range now.list {
			if in := re.prog[i]; in.op == opClass && in.set.has(c) && re.follow(later, in.next, false, at == len(s)) {
				return true
			}
		}
		now, later = later, now
		later.clear()
	}
}

// states are the instructions that are reached at a place of the text.
type states struct {
	list []int
	in   []bool
}

func (re *Regexp) empty() *states { return &states{in: make([]bool, len(re.prog))} }

func (s *states) clear() {
	for _, i := range s.list {
		s.in[i] = false
	}
	s.list = s.list[:0]
}

// follow adds what an instruction leads to without a character; true: a match.
func (re *Regexp) follow(s *states, i int, begin, end bool) bool {
	if s.in[i] {
		return false
	}
	s.in[i] = true
	s.list = append(s.list, i)
	switch in := re.prog[i]; in.op {
	case opMatch:
		return true
	case opSplit:
		return re.follow(s, in.next, begin, end) || re.follow(s, in.other, begin, end)
	case opBegin:
		return begin && re.follow(s, in.next, begin, end)
	case opEnd:
		return end && re.follow(s, in.next, begin, end)
	}
	return false
}
