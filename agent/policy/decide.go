package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// Decision says whether a table lets a packet pass, and why.
type Decision struct {
	Allowed bool
	// Because is the comment of the last rule that decided for each direction, "" if no policy applies.
	Because [2]string
}

// Decide returns what a table does with the first packet of a connection that a node forwards. It reads the rules as
// nftables does. An error means that a rule has a part that Decide does not know.
func Decide(t *nftable.Table, p Packet) (out Decision, err error) {
	for _, d := range []direction{egress, ingress} {
		e := evaluation{table: t, packet: p}
		verdict, err := e.chain(d.String())
		if err != nil {
			return Decision{}, err
		}
		out.Because[d] = e.comment
		if verdict == "drop" {
			return out, nil
		}
	}
	out.Allowed = true
	return out, nil
}

// evaluation follows a packet through a table.
type evaluation struct {
	table   *nftable.Table
	packet  Packet
	comment string // of the rule that decided
	depth   int
}

// chain returns "accept" or "drop", or "" if the packet reaches the end.
func (e *evaluation) chain(name string) (verdict string, err error) {
	c := e.table.Chains[name]
	if c == nil {
		return "", fmt.Errorf("chain %s does not exist", name)
	}
	if e.depth++; e.depth > 16 { // the kernel's limit of jumps
		return "", fmt.Errorf("chain %s: too many jumps", name)
	}
	defer func() { e.depth-- }()
	for _, r := range c.Rules {
		verdict, err := e.rule(r)
		if err != nil {
			return "", fmt.Errorf("chain %s, rule %q: %w", name, r.Text, err)
		}
		switch verb, target, _ := strings.Cut(verdict, " "); verb {
		case "accept", "drop":
			e.comment = r.Comment
			return verdict, nil
		case "goto":
			return e.chain(target)
		case "jump":
			if verdict, err := e.chain(target); verdict != "" || err != nil {
				return verdict, err
			}
		}
	}
	return "", nil
}

// rule returns the verdict of a rule, or "" if it does not match.
func (e *evaluation) rule(r nftable.Rule) (verdict string, err error) {
	if strings.HasPrefix(r.Text, nftable.UnknownRule) {
		return "", errors.New("this program does not know its meaning")
	}
	words := unquoted(r.Text)
	for len(words) > 0 {
		switch words[0] {
		case "log": // log prefix group NUMBER
			words = words[min(4, len(words)):]
			continue
		case "limit": // of reports: it does not change what happens to a packet
			return "", nil
		case "counter":
			words = words[1:]
			continue
		case "accept", "drop":
			return words[0], nil
		case "jump", "goto":
			return strings.Join(words, " "), nil
		}
		if strings.HasPrefix(strings.Join(words, " "), "ct state established,related ") {
			return "", nil // the first packet is of no known connection
		}
		var fields []string
		if fields, words, err = e.fields(words); err != nil || fields == nil {
			return "", err
		}
		if words[0] == "vmap" {
			return e.verdictOf(words[1:], fields)
		}
		if matches, err := e.matches(fields, words[0]); err != nil || !matches {
			return "", err
		}
		words = words[1:]
	}
	return "", nil
}

// verdictOf looks up fields in a map.
func (e *evaluation) verdictOf(words, fields []string) (verdict string, err error) {
	name := strings.TrimPrefix(strings.Join(words, " "), "@")
	m := e.table.Sets[name]
	if m == nil || m.Interval {
		return "", fmt.Errorf("there is no map %s without ranges", name)
	}
	return m.Elements[strings.Join(fields, " . ")], nil
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

// fields reads fields, "ip saddr . th dport", and returns the packet's values and the other words. The values are nil if
// the packet does not have the fields.
func (e *evaluation) fields(words []string) (values, rest []string, err error) {
	absent := false
	for {
		if len(words) < 2 {
			return nil, nil, fmt.Errorf("it ends early")
		}
		value, ok := e.field(words[0] + " " + words[1])
		if !ok {
			return nil, nil, fmt.Errorf("unknown field %q", words[0]+" "+words[1])
		}
		absent = absent || value == ""
		values, words = append(values, value), words[2:]
		if len(words) == 0 || words[0] != "." {
			break
		}
		words = words[1:]
	}
	if absent {
		values = nil
	}
	return values, words, nil
}

// field returns a value of the packet, which is "" if the packet lacks it.
func (e *evaluation) field(name string) (value string, known bool) {
	ofFamily := func(a netip.Addr, four bool) string {
		if a.Is4() != four {
			return ""
		}
		return a.String()
	}
	p := e.packet
	hasPort := p.Protocol == "TCP" || p.Protocol == "UDP" || p.Protocol == "SCTP"
	switch name {
	case "ip saddr":
		return ofFamily(p.Src, true), true
	case "ip daddr":
		return ofFamily(p.Dst, true), true
	case "ip6 saddr":
		return ofFamily(p.Src, false), true
	case "ip6 daddr":
		return ofFamily(p.Dst, false), true
	case "icmpv6 type": // Packet has no messages of neighbour discovery
		return "", true
	case "meta l4proto":
		return strings.ToLower(p.Protocol), true
	case "th dport":
		if !hasPort {
			return "", true
		}
		return strconv.Itoa(int(p.Port)), true
	}
	return "", false
}

// matches compares fields with a value or with the elements of a set.
func (e *evaluation) matches(fields []string, word string) (bool, error) {
	name, isSet := strings.CutPrefix(word, "@")
	if word == "!=" {
		return false, errors.New("it has !=, which no rule of policy has")
	}
	if !isSet {
		return fields[0] == word, nil
	}
	s := e.table.Sets[name]
	if s == nil {
		return false, fmt.Errorf("set %s does not exist", name)
	}
	if !s.Interval {
		_, is := s.Elements[strings.Join(fields, " . ")]
		return is, nil
	}
	for key := range s.Elements {
		if is, err := inRanges(fields, strings.Split(key, " . ")); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

func inRanges(fields, ranges []string) (bool, error) {
	if len(fields) != len(ranges) {
		return false, fmt.Errorf("%d fields in a set of %d", len(fields), len(ranges))
	}
	for i, r := range ranges {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		if !between(first, fields[i], last) {
			return false, nil
		}
	}
	return true, nil
}

func between(first, value, last string) bool {
	if a, err := netip.ParseAddr(value); err == nil {
		from, err1 := netip.ParseAddr(first)
		to, err2 := netip.ParseAddr(last)
		return err1 == nil && err2 == nil && !a.Less(from) && !to.Less(a)
	}
	if n, err := strconv.Atoi(value); err == nil {
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		return err1 == nil && err2 == nil && from <= n && n <= to
	}
	return first == value
}
