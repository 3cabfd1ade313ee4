package leanregexp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// node is a part of an expression: one of its fields.
type node struct {
	one    *inst
	seq    []node // one after the other
	either []node
	repeat *repeat
}

type repeat struct {
	of       node
	min, max int // max -1: without end
}

// emit adds the instructions that lead to next, and returns the first.
func (n node) emit(re *Regexp, next int) int {
	if len(re.prog) > maxProgram {
		return next
	}
	add := func(i inst) int {
		re.prog = append(re.prog, i)
		return len(re.prog) - 1
	}
	switch {
	case n.one != nil:
		i := *n.one
		i.next = next
		return add(i)
	case n.either != nil:
		first := n.either[0].emit(re, next)
		for _, e := range n.either[1:] {
			first = add(inst{op: opSplit, next: first, other: e.emit(re, next)})
		}
		return first
	case n.repeat != nil:
		return n.repeat.emit(re, next, add)
	}
	for i := len(n.seq) - 1; i >= 0; i-- {
		next = n.seq[i].emit(re, next)
	}
	return next
}

func (r repeat) emit(re *Regexp, next int, add func(inst) int) int {
	if r.max < 0 {
		loop := add(inst{op: opSplit, other: next})
		re.prog[loop].next = r.of.emit(re, loop)
		next = loop
	}
	after := next
	for range r.max - r.min { // none if without end
		next = add(inst{op: opSplit, next: r.of.emit(re, next), other: after})
	}
	for range r.min {
		next = r.of.emit(re, next)
	}
	return next
}

type parser struct {
	rest  string
	depth int
}

func (p *parser) take(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	p.rest = rest
	return ok
}

func (p *parser) next() rune {
	c, size := utf8.DecodeRuneInString(p.rest)
	p.rest = p.rest[size:]
	return c
}

func (p *parser) alternatives() (node, error) {
	if p.depth++; p.depth > 100 {
		return node{}, errors.New("nests too deep")
	}
	defer func() { p.depth-- }()
	var n node
	for {
		s, err := p.sequence()
		if err != nil {
			return n, err
		}
		n.either = append(n.either, s)
		if !p.take("|") {
			return n, nil
		}
	}
}

func (p *parser) sequence() (n node, err error) {
	for p.rest != "" && p.rest[0] != '|' && p.rest[0] != ')' {
		a, err := p.atom()
		if err != nil {
			return n, err
		}
		if a, err = p.repeated(a); err != nil {
			return n, err
		}
		n.seq = append(n.seq, a)
	}
	return n, nil
}

func class(not bool, ranges ...rune) node {
	return node{one: &inst{op: opClass, set: set{ranges, not}}}
}

func (p *parser) atom() (node, error) {
	if _, ok, _ := (&parser{rest: p.rest}).counted(); ok {
		return node{}, errors.New("a count repeats nothing")
	}
	switch c := p.next(); c {
	case '(':
		return p.group()
	case '[':
		return p.class()
	case '.':
		return class(true, '\n', '\n'), nil
	case '^':
		return node{one: &inst{op: opBegin}}, nil
	case '$':
		return node{one: &inst{op: opEnd}}, nil
	case '*', '+', '?':
		return node{}, fmt.Errorf("%q repeats nothing", c)
	case '\\':
		switch {
		case p.take("A"):
			return node{one: &inst{op: opBegin}}, nil
		case p.take("z"):
			return node{one: &inst{op: opEnd}}, nil
		}
		s, err := p.escape()
		return node{one: &inst{op: opClass, set: s}}, err
	default:
		return class(false, c, c), nil
	}
}

// group is what stands in parentheses; no group is remembered.
func (p *parser) group() (node, error) {
	if p.take("?P<") || p.take("?<") {
		name, rest, ok := strings.Cut(p.rest, ">")
		if !ok || name == "" {
			return node{}, errors.New("a group's name has no end")
		}
		p.rest = rest
	} else if !p.take("?:") && strings.HasPrefix(p.rest, "?") {
		return node{}, errors.New("flags are not supported")
	}
	n, err := p.alternatives()
	if err == nil && !p.take(")") {
		err = errors.New("a parenthesis is not closed")
	}
	return n, err
}

// escape is the character, or the class, behind a backslash.
func (p *parser) escape() (set, error) {
	classes := map[rune][]rune{'d': {'0', '9'}, 'w': {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}, 's': {'\t', '\n', '\f', '\r', ' ', ' '}}
	controls := map[rune]rune{'a': '\a', 'f': '\f', 't': '\t', 'n': '\n', 'r': '\r', 'v': '\v'}
	if p.rest == "" {
		return set{}, errors.New("ends in a backslash")
	}
	c := p.next()
	switch {
	case classes[c] != nil:
		return set{ranges: classes[c]}, nil
	case c < utf8.RuneSelf && classes[c|' '] != nil && c != c|' ':
		return set{ranges: classes[c|' '], not: true}, nil
	case controls[c] != 0:
		return set{ranges: []rune{controls[c], controls[c]}}, nil
	case c < utf8.RuneSelf && (c < '0' || c > '9') && (c|' ' < 'a' || c|' ' > 'z'):
		return set{ranges: []rune{c, c}}, nil
	}
	return set{}, fmt.Errorf(`\%c is not supported`, c)
}

// class is what stands in brackets.
func (p *parser) class() (node, error) {
	not := p.take("^")
	var ranges []rune
	for first := true; first || !strings.HasPrefix(p.rest, "]"); first = false {
		if strings.HasPrefix(p.rest, "[:") {
			return node{}, errors.New("named classes are not supported")
		}
		low, single, err := p.member()
		if err != nil {
			return node{}, err
		}
		if !single {
			if low.not {
				return node{}, errors.New("a negated class within brackets is not supported")
			}
			ranges = append(ranges, low.ranges...)
			continue
		}
		from, to := low.ranges[0], low.ranges[0]
		if len(p.rest) > 1 && p.rest[0] == '-' && p.rest[1] != ']' {
			p.rest = p.rest[1:]
			high, single, err := p.member()
			if err != nil || !single || high.ranges[0] < from {
				return node{}, errors.Join(errors.New("a range of characters ends before it begins"), err)
			}
			to = high.ranges[0]
		}
		ranges = append(ranges, from, to)
	}
	p.rest = p.rest[1:]
	return class(not, ranges...), nil
}

// member is one of a class in brackets; single: one character.
func (p *parser) member() (s set, single bool, err error) {
	if p.rest == "" {
		return s, false, errors.New("a bracket is not closed")
	}
	if c := p.next(); c != '\\' {
		return set{ranges: []rune{c, c}}, true, nil
	}
	s, err = p.escape()
	return s, err == nil && len(s.ranges) == 2 && s.ranges[0] == s.ranges[1] && !s.not, err
}

// repeated is an atom with the repetition behind it, if there is one.
func (p *parser) repeated(a node) (node, error) {
	low, high := 0, -1
	switch {
	case p.take("*"):
	case p.take("+"):
		low = 1
	case p.take("?"):
		high = 1
	default:
		n, ok, err := p.counted()
		if !ok || err != nil {
			return a, err
		}
		low, high = n[0], n[1]
	}
	p.take("?") // as few as can be: matches the same
	if p.rest != "" && strings.ContainsRune("*+?", rune(p.rest[0])) {
		return a, fmt.Errorf("%q repeats a repetition", p.rest[0])
	}
	if _, ok, _ := (&parser{rest: p.rest}).counted(); ok {
		return a, errors.New("a count repeats a repetition")
	}
	return node{repeat: &repeat{a, low, high}}, nil
}

const maxCount = 1000 // as in RE2

// counted reads {n}, {n,} or {n,m}; anything else in braces is itself.
func (p *parser) counted() (n [2]int, ok bool, err error) {
	if !strings.HasPrefix(p.rest, "{") {
		return n, false, nil
	}
	inner, rest, ok := strings.Cut(p.rest[1:], "}")
	low, high, two := strings.Cut(inner, ",")
	if !ok || !isNumber(low) || two && high != "" && !isNumber(high) {
		return n, false, nil
	}
	n[0], _ = strconv.Atoi(low) // digits; too many are too large below
	n[1] = n[0]
	if two {
		n[1] = -1
		if high != "" {
			n[1], _ = strconv.Atoi(high)
		}
	}
	if n[0] > maxCount || n[1] > maxCount || n[1] >= 0 && n[1] < n[0] {
		return n, true, fmt.Errorf("{%s}: want counts of at most %d, the smaller first", inner, maxCount)
	}
	p.rest = rest
	return n, true, nil
}

// isNumber: a count that begins with 0 is none, as in the library.
func isNumber(s string) bool {
	return s != "" && len(s) < 9 && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}
