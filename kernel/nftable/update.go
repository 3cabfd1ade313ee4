package nftable

import "maps"

// update is a change of parts of a table, and what to remember when it is committed.
type update struct {
	plan     *plan
	sets     map[string]*set   // nil: deleted
	chains   map[string]*Chain // nil: deleted
	elements []elements
}

// elements are the named elements of a set, before and after the change.
type elements struct {
	set        *set
	have, want map[string]string // by key
}

// update compares the parts that the changes name.
func (s *state) update(want *Table, changes Changes) (*update, error) {
	u := &update{plan: &plan{state: &state{family: want.Family, name: want.Name}}, sets: map[string]*set{}, chains: map[string]*Chain{}}
	for name := range changes.Chains {
		u.chains[name] = clone(want.Chains[name])
		u.plan.chain(name, s.chains[name], u.chains[name])
	}
	for name := range changes.Sets {
		if err := u.set(s.sets[name], want, name); err != nil {
			return nil, err
		}
	}
	for name, keys := range changes.Keys {
		var err error
		switch h, w := s.sets[name], want.Sets[name]; {
		case changes.Sets[name]: // compared already
		case h == nil || w == nil:
			err = u.set(h, want, name)
		default:
			err = u.keys(h, w, keys)
		}
		if err != nil {
			return nil, err
		}
	}
	return u, nil
}

// set compares a whole set.
func (u *update) set(have *set, want *Table, name string) (err error) {
	if u.sets[name], err = encodeSet(want, name, want.Sets[name]); err == nil {
		u.plan.set(have, u.sets[name])
	}
	return err
}

// keys compares some elements of a set.
func (u *update) keys(have *set, want *Set, keys map[string]bool) error {
	e := elements{have, map[string]string{}, map[string]string{}}
	for key := range keys {
		value, wanted := want.Elements[key]
		k, err := have.key(key)
		if err == nil && wanted {
			e.want[k], err = have.value(key, value)
		}
		if err != nil {
			return err
		}
		if v, ok := have.values[k]; ok {
			e.have[k] = v
		}
	}
	u.elements = append(u.elements, e)
	u.plan.elements(have, e.have, e.want)
	return nil
}

// merge adds the changes of an update to the state.
func (s *state) merge(u *update) {
	for name, c := range u.chains {
		if s.chains[name] = c; c == nil {
			delete(s.chains, name)
		}
	}
	for name, x := range u.sets {
		if s.sets[name] = x; x == nil {
			delete(s.sets, name)
		}
	}
	for _, e := range u.elements {
		for k := range e.have {
			delete(e.set.values, k)
		}
		maps.Copy(e.set.values, e.want)
	}
}
