package nftable

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/kernel/nft"
)

// state is the content of a table, with keys as the kernel has them.
type state struct {
	family, name string
	sets         map[string]*set
	chains       map[string]*Chain
}

// set is a set or map.
type set struct {
	nft.Elements
	text      string            // its type
	values    map[string]string // of elements, by key
	irregular bool              // the kernel's set has elements that can only be flushed
	unused    bool              // no rule of the kernel searches it
}

func emptyState(t *Table) *state {
	return &state{family: t.Family, name: t.Name, sets: map[string]*set{}, chains: map[string]*Chain{}}
}

// encode returns the state that a desired table describes.
func encode(t *Table) (*state, error) {
	s := emptyState(t)
	for name, x := range t.Sets {
		var err error
		if s.sets[name], err = encodeSet(t, name, x); err != nil {
			return nil, err
		}
	}
	for name, c := range t.Chains {
		s.chains[name] = clone(c)
	}
	return s, nil
}

// clone copies a chain, which the owner of the desired table may change later.
func clone(c *Chain) *Chain {
	if c == nil {
		return nil
	}
	return &Chain{Hook: c.Hook, Rules: slices.Clone(c.Rules)}
}

func encodeSet(t *Table, name string, x *Set) (*set, error) {
	if x == nil {
		return nil, nil
	}
	typ, err := nft.ParseSetType(x.Type)
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", name, err)
	}
	s := &set{
		Elements: nft.Elements{Family: t.Family, Table: t.Name, Set: name, Type: typ, Interval: x.Interval},
		text:     x.Type, values: make(map[string]string, len(x.Elements)),
	}
	for key, value := range x.Elements {
		k, err := s.key(key)
		if err == nil {
			s.values[k], err = s.value(key, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *set) key(text string) (string, error) {
	k, err := s.Key(text)
	if err != nil {
		err = fmt.Errorf("set %s: element %q: %w", s.Set, text, err)
	}
	return k, err
}

func (s *set) value(key, text string) (string, error) {
	v, err := s.Value(text)
	if err != nil {
		err = fmt.Errorf("set %s: element %q: %w", s.Set, key, err)
	}
	return v, err
}

func (s *set) part() nft.Part {
	kind := "set"
	if s.Type.IsMap() {
		kind = "map"
	}
	return nft.Part{Family: s.Family, Table: s.Table, Kind: kind, Name: s.Set, Text: s.text, Interval: s.Interval}
}

func (s *set) sameType(o *set) bool { return s.text == o.text && s.Interval == o.Interval }

func (s *set) equal(o *set) bool {
	return s.sameType(o) && !s.irregular && maps.Equal(s.values, o.values)
}

func (s *state) table() nft.Part { return nft.Part{Family: s.family, Table: s.name, Kind: "table"} }

func (s *state) chain(name, hook string) nft.Part {
	return nft.Part{Family: s.family, Table: s.name, Kind: "chain", Name: name, Text: hook}
}

func (s *state) rule(chain string, r Rule) nft.Part {
	return nft.Part{Family: s.family, Table: s.name, Kind: "rule", Name: chain, Text: r.Text, Comment: r.Comment}
}
