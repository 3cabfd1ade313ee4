package rawjson

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
)

// Object is a JSON object whose keys can be changed one by one. Unchanged keys keep their bytes and positions.
type Object struct{ members []Member }

// ParseObject parses an object. It finds the ends of values without checking them.
func ParseObject(data []byte) (*Object, error) {
	members, err := Members(data)
	if err != nil {
		return nil, err
	}
	return &Object{members}, nil
}

// Get returns a key's value as written, the last one if the key is repeated.
func (o *Object) Get(key string) (json.RawMessage, bool) {
	for _, m := range slices.Backward(o.members) {
		if m.Key == key {
			return m.Raw, true
		}
	}
	return nil, false
}

// All iterates over the keys in order, with their values as written.
func (o *Object) All() iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for _, m := range o.members {
			if !yield(m.Key, m.Raw) {
				return
			}
		}
	}
}

// String returns a key's value if it is a string, otherwise "".
func (o *Object) String(key string) string {
	raw, _ := o.Get(key)
	s, err := Unquote(raw)
	if err != nil {
		return ""
	}
	return s
}

// Set sets a key's value, in its position or at the end.
func (o *Object) Set(key string, raw json.RawMessage) {
	i := slices.IndexFunc(o.members, func(m Member) bool { return m.Key == key })
	if i < 0 {
		o.members = append(o.members, Member{Key: key, Value: Value{Raw: raw}})
		return
	}
	o.members[i].Raw = raw
	rest := slices.DeleteFunc(o.members[i+1:], func(m Member) bool { return m.Key == key })
	o.members = o.members[:i+1+len(rest)]
}

// SetString sets a key to a string.
func (o *Object) SetString(key, s string) { o.Set(key, quote(s)) }

// SetArray sets a key to an array.
func (o *Object) SetArray(key string, elements [][]byte) {
	o.Set(key, slices.Concat([]byte{'['}, bytes.Join(elements, []byte{','}), []byte{']'}))
}

// Delete removes a key.
func (o *Object) Delete(key string) {
	o.members = slices.DeleteFunc(o.members, func(m Member) bool { return m.Key == key })
}

// Len returns the number of keys.
func (o *Object) Len() int { return len(o.members) }

// Bytes returns the object as JSON.
func (o *Object) Bytes() []byte {
	b := []byte{'{'}
	for i, m := range o.members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quote(m.Key)...), ':'), m.Raw...)
	}
	return append(b, '}')
}

func quote(s string) json.RawMessage {
	raw, _ := json.Marshal(s) // a string always marshals
	return raw
}
