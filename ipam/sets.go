package ipam

import "fmt"

// CompleteSets returns the sets with every range complete, or a *FieldError:
// no set is empty or mixes address families, and no ranges overlap.
func CompleteSets(sets []RangeSet) ([]RangeSet, error) {
	done := make([]RangeSet, len(sets))
	for i, set := range sets {
		key := fmt.Sprintf("[%d]", i)
		if len(set) == 0 {
			return nil, fieldErrorf(key, `empty range set: want at least one range, like {"subnet": "10.1.0.0/16"}`)
		}
		for j, r := range set {
			r, err := completeIn(done[:i+1], r, fmt.Sprintf("%s[%d]", key, j))
			if err != nil {
				return nil, err
			}
			done[i] = append(done[i], r)
		}
	}
	return done, nil
}

// completeIn completes the range at key, which joins the last of the sets.
func completeIn(sets []RangeSet, r Range, key string) (Range, error) {
	r, err := r.Complete()
	if err != nil {
		field := err.(*FieldError)
		return Range{}, &FieldError{key + "." + field.Key, field.Problem}
	}
	if set := sets[len(sets)-1]; len(set) > 0 && set[0].Start.Is4() != r.Start.Is4() {
		return Range{}, fieldErrorf(key+".subnet", "mixed address families: the set's first range is %s; want another range set for the other family", set[0].Subnet)
	}
	for i, set := range sets {
		for j, other := range set {
			if r.overlaps(other) {
				return Range{}, fieldErrorf(key, "the range %s overlaps with %s of set %d, range %d: an address may be in one range only", r, other, i, j)
			}
		}
	}
	return r, nil
}
