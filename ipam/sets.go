package ipam

import (
	"net/netip"
	"slices"
)

// CompleteSets returns the sets with every range complete, or a *FieldError: no set is empty or mixes address families,
// and no ranges overlap.
func CompleteSets(sets []RangeSet) ([]RangeSet, error) {
	done := make([]RangeSet, len(sets))
	var all places
	for i, set := range sets {
		if len(set) == 0 {
			return nil, &FieldError{i, -1, "", `empty range set: want at least one range, like {"subnet": "10.1.0.0/16"}`}
		}
		for j, r := range set {
			r, err := r.Complete()
			if err == nil {
				err = sameFamily(done[i], r)
			}
			if err == nil {
				err = all.add(place{r, i, j})
			}
			if err != nil {
				field := err.(*FieldError)
				return nil, &FieldError{i, j, field.Field, field.Problem}
			}
			done[i] = append(done[i], r)
		}
	}
	return done, nil
}

func sameFamily(set RangeSet, r Range) error {
	if len(set) > 0 && set[0].Start.Is4() != r.Start.Is4() {
		return fieldErrorf("subnet", "mixed address families: the set's first range is in %s; put the other family into a separate range set", set[0].Subnet)
	}
	return nil
}

// place is where a configuration has a range.
type place struct {
	Range
	set, index int
}

// places are ranges in the order of their addresses. None overlap, so that only a new range's neighbor can overlap with
// it: lists with tens of thousands of ranges exist.
type places []place

func (p *places) add(r place) error {
	next, _ := slices.BinarySearchFunc(*p, r.End, func(o place, end netip.Addr) int {
		if o.Start.Compare(end) <= 0 {
			return -1
		}
		return 1
	})
	if next > 0 {
		if before := (*p)[next-1]; !before.End.Less(r.Start) {
			return fieldErrorf("", "the range %s overlaps with %s (range set %d, range %d): want every address in one range only", r, before, before.set, before.index)
		}
	}
	*p = slices.Insert(*p, next, r)
	return nil
}
