package rawjson

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// ErrElse is Decode's error for what only encoding/json can judge: a value that does not fit its type, or a type that
// Decode does not support.
var ErrElse = errors.New("rawjson: left to encoding/json")

// Decode decodes data, which must be valid JSON, into v, as json.Unmarshal does. It builds no type tables first, which
// would not pay off in a process that reads each type once. On ErrElse, v may contain some of the values.
func Decode(data []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return ErrElse
	}
	data = data[skipSpace(data, 0):]
	end, err := skipValue(data, 0)
	if err != nil {
		return ErrElse
	}
	return decode(data[:end], p.Elem(), 0)
}

// maxDepth is deeper than any configuration; encoding/json reads what nests deeper.
const maxDepth = 100

func decode(raw []byte, v reflect.Value, depth int) error {
	if depth > maxDepth {
		return ErrElse
	}
	null := raw[0] == 'n'
	if !null && v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return decode(raw, v.Elem(), depth+1)
	}
	if done, err := decodeItself(raw, v); done {
		return err
	}
	if null {
		switch v.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
			v.SetZero()
		}
		return nil
	}
	switch raw[0] {
	case '{':
		return decodeObject(raw, v, depth+1)
	case '[':
		return decodeList(raw, v, depth+1)
	case '"':
		return decodeString(raw, v)
	case 't', 'f':
		if v.Kind() != reflect.Bool {
			return decodeAny(raw, v)
		}
		v.SetBool(raw[0] == 't')
		return nil
	}
	return decodeNumber(raw, v)
}

// decodeItself handles types with their own decoder.
func decodeItself(raw []byte, v reflect.Value) (bool, error) {
	if v.Kind() == reflect.Pointer || !v.CanAddr() || v.Type().Name() == "" && v.Kind() != reflect.Struct {
		return false, nil
	}
	switch u := v.Addr().Interface().(type) {
	case *string, *bool, *int:
		return false, nil
	case json.Unmarshaler:
		return true, orElse(u.UnmarshalJSON(raw))
	case encoding.TextUnmarshaler:
		if raw[0] == 'n' {
			return true, nil
		}
		text, err := Unquote(raw)
		if err == nil {
			err = u.UnmarshalText([]byte(text))
		}
		return true, orElse(err)
	}
	return false, nil
}

func orElse(err error) error {
	if err != nil {
		return ErrElse
	}
	return nil
}

// decodeAny decodes an interface's value with encoding/json.
func decodeAny(raw []byte, v reflect.Value) error {
	if v.Kind() != reflect.Interface || v.NumMethod() > 0 || !v.IsNil() {
		return ErrElse
	}
	return orElse(json.Unmarshal(raw, v.Addr().Interface()))
}

func decodeString(raw []byte, v reflect.Value) error {
	if v.Kind() != reflect.String {
		return decodeAny(raw, v)
	}
	s, err := Unquote(raw)
	v.SetString(s)
	return orElse(err)
}

func decodeNumber(raw []byte, v reflect.Value) error {
	s := string(raw)
	switch v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, v.Type().Bits())
		v.SetInt(n)
		return orElse(err)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(s, 10, v.Type().Bits())
		v.SetUint(n)
		return orElse(err)
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(s, v.Type().Bits())
		v.SetFloat(n)
		return orElse(err)
	}
	return decodeAny(raw, v)
}

func decodeList(raw []byte, v reflect.Value, depth int) error {
	if v.Kind() != reflect.Slice || v.Len() > 0 || v.Type().Elem().Kind() == reflect.Uint8 {
		return decodeAny(raw, v)
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	err := scan(raw, '[', ']', func(i int) (int, error) {
		next, err := skipValue(raw, i)
		if err != nil {
			return next, err
		}
		if v.Len() == v.Cap() {
			v.Grow(max(v.Len(), 2))
		}
		v.SetLen(v.Len() + 1)
		v.Index(v.Len() - 1).SetZero()
		return next, decode(raw[i:next], v.Index(v.Len()-1), depth)
	})
	return orElse(err)
}

func decodeObject(raw []byte, v reflect.Value, depth int) error {
	switch {
	case v.Kind() == reflect.Struct:
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String && v.Type().Key().PkgPath() == "":
		return decodeMap(raw, v, depth)
	default:
		return decodeAny(raw, v)
	}
	return orElse(scan(raw, '{', '}', func(i int) (int, error) {
		m, next, err := member(raw, i)
		if err != nil {
			return next, err
		}
		f, err := field(v, m.Key)
		if err != nil || !f.IsValid() {
			return next, err
		}
		return next, decode(m.Raw, f, depth)
	}))
}

func decodeMap(raw []byte, v reflect.Value, depth int) error {
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	return orElse(scan(raw, '{', '}', func(i int) (int, error) {
		m, next, err := member(raw, i)
		if err != nil {
			return next, err
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if err = decode(m.Raw, item, depth); err == nil {
			v.SetMapIndex(reflect.ValueOf(m.Key), item)
		}
		return next, err
	}))
}

// field returns the field of a key: an exact match, or else one that ignores case. It is invalid if there is none.
func field(v reflect.Value, key string) (reflect.Value, error) {
	f, err := fieldBy(v, func(name string) bool { return name == key })
	if err == nil && !f.IsValid() {
		f, err = fieldBy(v, func(name string) bool { return strings.EqualFold(name, key) })
	}
	return f, err
}

// fieldBy searches a struct first, then the structs that it embeds.
func fieldBy(v reflect.Value, is func(string) bool) (reflect.Value, error) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() || f.Anonymous && name == "":
			continue
		case name == "":
			name = f.Name
		}
		if is(name) {
			if strings.Contains(options, "string") {
				return reflect.Value{}, ErrElse
			}
			return v.Field(i), nil
		}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.Anonymous || f.Tag.Get("json") != "" {
			continue
		}
		if f.Type.Kind() != reflect.Struct {
			return reflect.Value{}, ErrElse
		}
		if in, err := fieldBy(v.Field(i), is); err != nil || in.IsValid() {
			return in, err
		}
	}
	return reflect.Value{}, nil
}
