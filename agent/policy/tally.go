package policy

import (
	"strings"

	"github.com/fairlead/fairlead/kernel/nftable"
)

// Tally sums what the kernel's rules have counted, by policy. The sums only grow, also when the kernel's counters begin
// again at 0 because a chain was written again. What such a chain has counted since the last Add is lost.
type Tally struct {
	sums  map[Series]uint64
	last  map[uint64]uint64 // packets by the handle of a rule
	limit int
}

// Series identifies a sum. Namespace and name are those of the policy. A drop because no NetworkPolicy allows a
// packet has no name, and the namespace of the pod. A drop because the pod's namespace is not known has neither.
type Series struct {
	Kind, Namespace, Name string
	Direction             string // "ingress" or "egress"
	Verdict               string // "accepted", "dropped" or "passed"
}

// otherPolicies is the name of the sum for policies beyond the limit.
const otherPolicies = "others"

// NewTally returns a tally with sums of their own for a number of policies. Further policies share one. A policy keeps its
// sum until its rules have gone, or gets one then.
func NewTally(policies int) *Tally {
	return &Tally{sums: map[Series]uint64{}, last: map[uint64]uint64{}, limit: policies}
}

// Skip notes what the rules have counted so far, which no sum contains.
func (t *Tally) Skip(list []nftable.Counter) {
	for _, c := range list {
		t.last[c.Handle] = c.Packets
	}
}

// Add adds what the rules of the table have counted since the last call.
func (t *Tally) Add(list []nftable.Counter) {
	last, known := t.last, t.keep(list)
	t.last = make(map[uint64]uint64, len(list))
	for _, c := range list {
		s, ok := seriesOf(c)
		if !ok {
			continue
		}
		if p := s.policy(); !known[p] && len(known) >= t.limit {
			s.Kind, s.Namespace, s.Name = "", "", otherPolicies
		} else {
			known[p] = true
		}
		packets := c.Packets
		if before := last[c.Handle]; before <= packets {
			packets -= before
		} // else another rule had the handle, in a table that is gone
		t.sums[s] += packets
		t.last[c.Handle] = c.Packets
	}
}

// Merge adds the sums of another tally for the policies of this one.
func (t *Tally) Merge(other *Tally) {
	known := map[Series]bool{}
	for s := range t.sums {
		known[s.policy()] = true
	}
	for s, n := range other.sums {
		if known[s.policy()] {
			t.sums[s] += n
		}
	}
}

// keep deletes the sums of policies that have gone, and returns the policies that have one.
func (t *Tally) keep(list []nftable.Counter) map[Series]bool {
	exists := map[Series]bool{}
	for _, c := range list {
		if s, ok := seriesOf(c); ok {
			exists[s.policy()] = true
		}
	}
	known := map[Series]bool{}
	for s := range t.sums {
		switch {
		case s.Kind == "": // shared
		case exists[s.policy()]:
			known[s.policy()] = true
		default:
			delete(t.sums, s)
		}
	}
	return known
}

// policy returns the series without what one policy may have several of.
func (s Series) policy() Series { return Series{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name} }

// seriesOf returns what a rule counts. ok is false for a rule that decides nothing.
func seriesOf(c nftable.Counter) (s Series, ok bool) {
	s.Direction, _, ok = strings.Cut(c.Chain, "-")
	if !ok || s.Direction != ingress.String() && s.Direction != egress.String() {
		return Series{}, false
	}
	switch {
	case c.Verdict == "accept":
		s.Verdict = "accepted"
	case c.Verdict == "drop" || c.Target == UnreportedChain:
		s.Verdict = "dropped"
	default:
		s.Verdict = "passed"
	}
	r := parseComment(c.Comment)
	id := ""
	switch {
	case len(r.Policies) > 0:
		id = r.Policies[0]
	case r.Isolated: // the first name is too long. The namespace always fits
		id = networkPolicyPrefix + strings.TrimPrefix(r.Text, noRule+": ")
	case strings.HasPrefix(r.Text, networkPolicyPrefix), strings.HasPrefix(r.Text, clusterPolicyPrefix):
		id = r.Text // with the beginning of the name
	default:
		return s, true
	}
	kind, name, _ := strings.Cut(id, " ")
	s.Kind, s.Name = kind, name
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		s.Namespace, s.Name = namespace, name
	}
	if r.Isolated {
		s.Name = ""
	}
	return s, true
}

// Sums returns the sums.
func (t *Tally) Sums() map[Series]uint64 { return t.sums }
