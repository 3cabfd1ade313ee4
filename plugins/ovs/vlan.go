package ovs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/plugins/link"
)

// vlanRange is an element of trunk; 0 means untagged frames.
type vlanRange link.VLANRange

func (v vlanRange) problem() string { return link.VLANRange(v).Problem(0, "0 (untagged)") }

const maxVLAN = 4094

func (c *ovs) validateVLANs() error {
	if c.VLAN < 0 || c.VLAN > maxVLAN {
		return cni.Invalid(c.Raw, "vlan", "want a VLAN ID from 0 (none) to 4094")
	}
	for i, v := range c.Trunk {
		if problem := v.problem(); problem != "" {
			return cni.Invalid(c.Raw, fmt.Sprintf("trunk[%d]", i), problem)
		}
	}
	c.vlans.Tag, c.vlans.Trunks = c.VLAN, trunks(c.Trunk)
	return nil
}

type span struct{ first, last int }

// trunks returns the ranges as text, sorted and merged: "5,10-20".
func trunks(list []vlanRange) string {
	var spans []span
	for _, v := range list {
		if v.ID != nil {
			spans = append(spans, span{*v.ID, *v.ID})
		}
		if v.MinID != nil {
			spans = append(spans, span{*v.MinID, *v.MaxID})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var joined []span
	for _, s := range spans {
		if n := len(joined); n > 0 && s.first <= joined[n-1].last+1 {
			joined[n-1].last = max(joined[n-1].last, s.last)
			continue
		}
		joined = append(joined, s)
	}
	var words []string
	for _, s := range joined {
		word := fmt.Sprint(s.first)
		if s.last > s.first {
			word += fmt.Sprintf("-%d", s.last)
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

// ids expands the result of trunks into single IDs.
func ids(trunks string) (out []int) {
	for word := range strings.SplitSeq(trunks, ",") {
		var s span
		switch n, _ := fmt.Sscanf(word, "%d-%d", &s.first, &s.last); n {
		case 0:
			continue
		case 1:
			s.last = s.first
		}
		for id := s.first; id <= s.last; id++ {
			out = append(out, id)
		}
	}
	return out
}
