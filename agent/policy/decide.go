package policy

import (
	"fmt"
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
func Decide(t *nftable.Table, p Packet) (Decision, error) { return NewEvaluator(t).Decide(p) }

// Evaluator decides about many packets by one table, which must not change meanwhile. It keeps the rules in a form that is
// fast to evaluate.
type Evaluator struct {
	table  *nftable.Table
	chains map[string][]parsedRule
	sets   map[string]*parsedSet
}

// NewEvaluator returns an Evaluator of a table.
func NewEvaluator(t *nftable.Table) *Evaluator {
	return &Evaluator{t, map[string][]parsedRule{}, map[string]*parsedSet{}}
}

// Decide returns what the table does with the first packet of a connection, as function Decide.
func (v *Evaluator) Decide(p Packet) (out Decision, err error) {
	for _, d := range []direction{egress, ingress} {
		e := v.evaluate(p)
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

// DecideToNode returns what the table does with the first packet of a connection from an endpoint to its own node.
func (v *Evaluator) DecideToNode(p Packet) (out Decision, err error) {
	e := v.evaluate(p)
	verdict, err := e.chain(baseChain(toNode))
	out.Because[egress] = e.comment
	out.Allowed = verdict != "drop"
	return out, err
}

// Restricts reports whether policy applies to any endpoint of the node. If not, every packet is allowed.
func (v *Evaluator) Restricts() bool {
	n := 0
	for _, d := range []direction{ingress, egress} {
		for family := range addrTypes {
			n += len(v.table.Sets[mapOf(d, family)].Elements)
		}
	}
	return n > 0
}

func (v *Evaluator) evaluate(p Packet) *evaluation {
	e := &evaluation{Evaluator: v, packet: p}
	src, dst := fieldSaddr, fieldDaddr
	if p.Src.Is6() {
		src, dst = fieldSaddr6, fieldDaddr6
	}
	e.values[src], e.values[dst], e.values[fieldProtocol] = p.Src.String(), p.Dst.String(), strings.ToLower(p.Protocol)
	if p.Protocol == "TCP" || p.Protocol == "UDP" || p.Protocol == "SCTP" {
		e.values[fieldPort] = strconv.Itoa(int(p.Port))
	}
	return e
}

// evaluation follows a packet through a table.
type evaluation struct {
	*Evaluator
	packet  Packet
	values  [fieldCount]string // of the packet's fields; "": it lacks the field
	comment string             // of the rule that decided
	depth   int
}

// chain returns "accept" or "drop", or "" if the packet reaches the end.
func (e *evaluation) chain(name string) (verb string, err error) {
	rules, err := e.parsed(name)
	if err != nil {
		return "", err
	}
	if e.depth++; e.depth > 16 { // the kernel's limit of jumps
		return "", fmt.Errorf("chain %s: too many jumps", name)
	}
	defer func() { e.depth-- }()
	for i := range rules {
		switch v := e.rule(&rules[i]); v.verb {
		case "accept", "drop":
			e.comment = rules[i].comment
			return v.verb, nil
		case "return":
			return "", nil
		case "goto":
			return e.chain(v.target)
		case "jump":
			if verb, err := e.chain(v.target); verb != "" || err != nil {
				return verb, err
			}
		}
	}
	return "", nil
}

// rule returns the verdict of a rule, or none if it does not match.
func (e *evaluation) rule(r *parsedRule) verdict {
	for i := range r.matches {
		m := &r.matches[i]
		key := e.key(m.fields)
		if key == "" {
			return verdict{}
		}
		if m.verdicts {
			return parseVerdict(m.set.elements[key])
		}
		if !e.matches(m, key) {
			return verdict{}
		}
	}
	return r.verdict
}

// key returns the packet's values of fields, or "" if it lacks one.
func (e *evaluation) key(fields []packetField) (key string) {
	for i, f := range fields {
		value := e.values[f]
		if value == "" {
			return ""
		}
		if i > 0 {
			value = key + " . " + value
		}
		key = value
	}
	return key
}

// matches compares a key with a value or with the elements of a set.
func (e *evaluation) matches(m *match, key string) bool {
	switch {
	case m.set == nil:
		return key == m.value
	case !m.set.interval:
		_, is := m.set.elements[key]
		return is
	}
	switch m.fields[0] {
	case fieldSaddr, fieldSaddr6:
		return m.set.hasAddr(e.packet.Src)
	case fieldDaddr, fieldDaddr6:
		return m.set.hasAddr(e.packet.Dst)
	}
	return m.set.hasPort(e.values[fieldProtocol], e.packet.Port)
}
