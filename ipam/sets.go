package ipam

import (
	"cmp"
	"fmt"
	"slices"
)

// CompleteSets returns the sets with every range complete, or a *FieldError: no set is empty or mixes address families,
// and no ranges overlap.
func CompleteSets(sets []RangeSet) ([]RangeSet, error) {
	done := make([]RangeSet, len(sets))
	for i, set := range sets {
		if len(set) == 0 {
			return nil, &FieldError{i, -1, "", `empty range set: want at least one range, like {"subnet": "10.1.0.0/16"}`}
		}
		for j, r := range set {
			r, err := r.Complete()
			if err == nil {
				err = sameFamily(done[i], r)
			}
			if err != nil {
				field := err.(*FieldError)
				return nil, &FieldError{i, j, field.Field, field.Problem}
			}
			done[i] = append(done[i], r)
		}
	}
	if err := overlap(done); err != nil {
		return nil, err
	}
	return done, nil
}

func sameFamily(set RangeSet, r Range) error {
	if len(set) > 0 && set[0].Start.Is4() != r.Start.Is4() {
		return fieldErrorf("subnet", "mixed address families: the set's first range is in %s; put the other family into a separate range set", set[0].Subnet)
	}
	return nil
}

// place is a range with its position in the configuration.
type place struct {
	*Range
	set, index int
}

// overlap returns an error for a range that overlaps with an earlier one in the configuration. It sorts the ranges by
// address, because there may be tens of thousands.
func overlap(sets []RangeSet) *FieldError {
	var all []place
	for i, set := range sets {
		for j := range set {
			all = append(all, place{&set[j], i, j})
		}
	}
	slices.SortStableFunc(all, func(p, q place) int { return p.Start.Compare(q.Start) })
	for i := 1; i < len(all); i++ {
		p, q := all[i-1], all[i]
		if p.End.Less(q.Start) {
			continue
		}
		if cmp.Or(cmp.Compare(p.set, q.set), cmp.Compare(p.index, q.index)) > 0 {
			p, q = q, p
		}
		return &FieldError{q.set, q.index, "", fmt.Sprintf("the range %s overlaps with %s (range set %d, range %d): want every address in one range only",
			q, p, p.set, p.index)}
	}
	return nil
}
