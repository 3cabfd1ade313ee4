package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// parsedRule is a rule that has its verdict if all its conditions hold. The last condition may be a map to verdicts.
type parsedRule struct {
	comment string
	matches []match
	verdict verdict
}

// verdict is the action of a rule: accept, drop, return, jump or goto a chain, or nothing.
type verdict struct{ verb, target string }

func parseVerdict(text string) verdict {
	verb, target, _ := strings.Cut(text, " ")
	return verdict{verb, target}
}

// packetField is a field of a packet that rules use.
type packetField int

const (
	fieldSaddr packetField = iota
	fieldDaddr
	fieldSaddr6
	fieldDaddr6
	fieldProtocol
	fieldPort
	fieldICMPv6 // Packet has no messages of neighbour discovery, so that no packet has this field or the next one
	fieldHopLimit
	fieldCount
)

// fieldNames are the fields as nft(8) writes them.
var fieldNames = [fieldCount]string{"ip saddr", "ip daddr", "ip6 saddr", "ip6 daddr", "meta l4proto", "th dport", "icmpv6 type", "ip6 hoplimit"}

// match is a condition on fields: a value, or the elements of a set or map.
type match struct {
	fields   []packetField
	value    string
	set      *parsedSet
	verdicts bool // the set is a map to verdicts
}

// parsed returns the rules of a chain.
func (v *Evaluator) parsed(name string) (out []parsedRule, err error) {
	if rules, ok := v.chains[name]; ok {
		return rules, nil
	}
	c := v.table.Chains[name]
	if c == nil {
		return nil, fmt.Errorf("chain %s does not exist", name)
	}
	for _, r := range c.Rules {
		x, err := v.parseRule(r)
		if err != nil {
			return nil, fmt.Errorf("chain %s, rule %q: %w", name, r.Text, err)
		}
		out = append(out, x)
	}
	v.chains[name] = out
	return out, nil
}

// parseRule reads a rule as nft(8) writes it.
func (v *Evaluator) parseRule(r nftable.Rule) (out parsedRule, err error) {
	out.comment = r.Comment
	if strings.HasPrefix(r.Text, nftable.UnknownRule) {
		return out, errors.New("this program does not know its meaning")
	}
	words := unquoted(r.Text)
	for len(words) > 0 {
		switch words[0] {
		case "counter":
			words = words[1:]
			continue
		case "log": // log prefix group NUMBER
			words = words[min(4, len(words)):]
			continue
		case "limit": // of reports: it does not change what happens to a packet
			return parsedRule{}, nil
		case "accept", "drop", "return", "jump", "goto":
			out.verdict = parseVerdict(strings.Join(words, " "))
			return out, nil
		}
		if text := strings.Join(words, " "); strings.HasPrefix(text, "ct state established,related ") || strings.HasPrefix(text, "ct id ") {
			return parsedRule{}, nil // the first packet is of no known connection
		}
		var m match
		if m.fields, words, err = parseFields(words); err != nil {
			return out, err
		}
		if m.verdicts = words[0] == "vmap"; m.verdicts && len(words) > 1 {
			words = words[1:]
		}
		m.value = words[0]
		if name, isSet := strings.CutPrefix(words[0], "@"); isSet {
			if m.set, err = v.parsedSet(name); err != nil {
				return out, err
			}
		}
		if m.verdicts && (m.set == nil || m.set.interval) {
			return out, errors.New("vmap without a map, or with one of ranges")
		}
		if m.value == "!=" {
			return out, errors.New("it has the operator !=, which Fairlead does not use")
		}
		out.matches, words = append(out.matches, m), words[1:]
	}
	return out, nil
}

// unquoted returns the words of a rule without the text in quotes, which no decision depends on.
func unquoted(text string) (words []string) {
	for i, part := range strings.Split(text, `"`) {
		if i%2 == 0 {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// parseFields reads fields, "ip saddr . th dport", and returns the other words.
func parseFields(words []string) (fields []packetField, rest []string, err error) {
	for {
		if len(words) < 3 {
			return nil, nil, fmt.Errorf("it ends early")
		}
		name := words[0] + " " + words[1]
		f := slices.Index(fieldNames[:], name)
		if f < 0 {
			return nil, nil, fmt.Errorf("unknown field %q", name)
		}
		if fields, words = append(fields, packetField(f)), words[2:]; words[0] != "." {
			return fields, words, nil
		}
		words = words[1:]
	}
}

// parsedSet is a set or map. The elements of a set of intervals are either addresses, sorted, or ports.
type parsedSet struct {
	elements map[string]string
	interval bool
	addrs    []addrRange
	ports    []portRange
}

func (v *Evaluator) parsedSet(name string) (*parsedSet, error) {
	if x := v.sets[name]; x != nil {
		return x, nil
	}
	s := v.table.Sets[name]
	if s == nil {
		return nil, fmt.Errorf("set %s does not exist", name)
	}
	x := &parsedSet{elements: s.Elements, interval: s.Interval}
	if s.Interval {
		for key := range s.Elements {
			if err := x.addRange(key); err != nil {
				return nil, fmt.Errorf("set %s, element %q: %w", name, key, err)
			}
		}
		x.addrs = mergeAddrs(x.addrs)
	}
	v.sets[name] = x
	return x, nil
}

// addRange is the reverse of addrRange.String and portRange.String.
func (s *parsedSet) addRange(text string) error {
	protocol, ports, isPort := strings.Cut(text, " . ")
	first, last, isRange := strings.Cut(cmp.Or(ports, text), "-")
	if !isRange {
		last = first
	}
	if isPort {
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		s.ports = append(s.ports, portRange{protocol, uint16(from), uint16(to)})
		return errors.Join(err1, err2)
	}
	from, err1 := netip.ParseAddr(first)
	to, err2 := netip.ParseAddr(last)
	s.addrs = append(s.addrs, addrRange{from, to})
	return errors.Join(err1, err2)
}

func (s *parsedSet) hasAddr(a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(s.addrs, a, func(x addrRange, a netip.Addr) int { return x.first.Compare(a) })
	return found || i > 0 && !s.addrs[i-1].last.Less(a)
}

func (s *parsedSet) hasPort(protocol string, port uint16) bool {
	return slices.ContainsFunc(s.ports, func(x portRange) bool { return x.protocol == protocol && x.first <= port && port <= x.last })
}
