package rawjson

import (
	"reflect"
	"strings"
	"sync"
)

// fields are the fields of a struct that a key can name, its own before those of the structs that it embeds.
type fields []field

type field struct {
	name  string
	index []int // see reflect.Value.FieldByIndex
	other bool  // only encoding/json can decode it, or, without a name, whatever follows
}

var known struct {
	sync.RWMutex
	fields map[reflect.Type]fields
}

func fieldsOf(t reflect.Type) fields {
	known.RLock()
	list, ok := known.fields[t]
	known.RUnlock()
	if ok {
		return list
	}
	list = listFields(t)
	known.Lock()
	defer known.Unlock()
	if known.fields == nil {
		known.fields = map[reflect.Type]fields{}
	}
	known.fields[t] = list
	return list
}

func listFields(t reflect.Type) (list fields) {
	list = make(fields, 0, t.NumField())
	var embedded fields
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			for _, in := range listFields(f.Type) {
				in.index = append([]int{i}, in.index...)
				embedded = append(embedded, in)
			}
			continue
		case f.Anonymous && tag == "":
			embedded = append(embedded, field{other: true})
			continue
		case name == "-" || !f.IsExported() || f.Anonymous && name == "":
			continue
		case name == "":
			name = f.Name
		}
		list = append(list, field{name, f.Index, strings.Contains(options, "string")})
	}
	return append(list, embedded...)
}

// find returns the field of a key: an exact match, or else one that ignores case, or nil.
func (l fields) find(key []byte) (*field, error) {
	f, err := l.first(func(name string) bool { return name == string(key) })
	if f == nil && err == nil {
		return l.first(func(name string) bool { return strings.EqualFold(name, string(key)) })
	}
	return f, err
}

func (l fields) first(is func(string) bool) (*field, error) {
	for i, f := range l {
		switch {
		case f.other && (f.name == "" || is(f.name)):
			return nil, ErrElse
		case f.name != "" && is(f.name):
			return &l[i], nil
		}
	}
	return nil, nil
}
