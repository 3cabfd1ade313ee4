package ipam

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
				err = fits(done[:i+1], r)
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

// fits reports whether a range can join the last of the sets.
func fits(sets []RangeSet, r Range) error {
	if set := sets[len(sets)-1]; len(set) > 0 && set[0].Start.Is4() != r.Start.Is4() {
		return fieldErrorf("subnet", "mixed address families: the set's first range is in %s; put the other family into a separate range set", set[0].Subnet)
	}
	for i, set := range sets {
		for j, other := range set {
			if r.overlaps(other) {
				return fieldErrorf("", "the range %s overlaps with %s (range set %d, range %d): want every address in one range only", r, other, i, j)
			}
		}
	}
	return nil
}
