package rawjson

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
)

// ErrElse is Decode's error for what only encoding/json can judge: a value that does not fit its type, or a type that
// Decode does not support.
var ErrElse = errors.New("rawjson: left to encoding/json")

// Decode decodes data, which must be valid JSON, into v, as json.Unmarshal does. It reads the data once and prepares
// less per type, which pays off in a process that reads few values. On ErrElse, v may contain some of the values.
func Decode(data []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return ErrElse
	}
	if _, err := decode(data, skipSpace(data, 0), p.Elem(), 0); err != nil {
		return ErrElse
	}
	return nil
}

// Unmarshal decodes data, which must be valid JSON, into v, with encoding/json if Decode cannot.
func Unmarshal(data []byte, v any) error {
	if Decode(data, v) == nil {
		return nil
	}
	return json.Unmarshal(data, v)
}

// Part is a value as written. It is part of the decoded data, so that nobody may change these afterwards.
type Part []byte

// UnmarshalJSON keeps the data.
func (p *Part) UnmarshalJSON(data []byte) error {
	*p = data
	return nil
}

// maxDepth is deeper than any configuration; encoding/json reads what nests deeper.
const maxDepth = 100

// decode decodes the value at i and returns its end.
func decode(data []byte, i int, v reflect.Value, depth int) (end int, err error) {
	if depth > maxDepth || i >= len(data) {
		return i, ErrElse
	}
	null := data[i] == 'n'
	if !null && v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return decode(data, i, v.Elem(), depth+1)
	}
	itself := decoderOf(v)
	switch {
	case itself != nil:
	case data[i] == '{' && v.Kind() == reflect.Struct:
		return decodeStruct(data, i, v, depth+1)
	case data[i] == '{' && hasTextKeys(v):
		return decodeMap(data, i, v, depth+1)
	case data[i] == '[' && isList(v):
		return decodeList(data, i, v, depth+1)
	}
	if end, err = skipValue(data, i); err != nil {
		return end, err
	}
	switch raw := data[i:end]; {
	case itself != nil:
		return end, decodeItself(raw, itself)
	case null:
		switch v.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
			v.SetZero()
		}
		return end, nil
	default:
		return end, decodeScalar(raw, v)
	}
}

func hasTextKeys(v reflect.Value) bool {
	return v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String && v.Type().Key().PkgPath() == ""
}

func isList(v reflect.Value) bool {
	return v.Kind() == reflect.Slice && v.Len() == 0 && v.Type().Elem().Kind() != reflect.Uint8
}

// decoderOf returns v as a json.Unmarshaler or an encoding.TextUnmarshaler, or nil if its type has no decoder.
func decoderOf(v reflect.Value) any {
	if v.Kind() == reflect.Pointer || !v.CanAddr() || v.Type().PkgPath() == "" && v.Kind() != reflect.Struct {
		return nil
	}
	switch u := v.Addr().Interface().(type) {
	case json.Unmarshaler, encoding.TextUnmarshaler:
		return u
	}
	return nil
}

func decodeItself(raw []byte, decoder any) error {
	if u, ok := decoder.(json.Unmarshaler); ok {
		return u.UnmarshalJSON(raw)
	}
	if raw[0] == 'n' {
		return nil
	}
	text, err := Unquote(raw)
	if err != nil {
		return err
	}
	return decoder.(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
}

// decodeScalar decodes a value of a basic type, or leaves it to encoding/json if the variable can hold any value.
func decodeScalar(raw []byte, v reflect.Value) error {
	switch c := raw[0]; {
	case c == '"' && v.Kind() == reflect.String:
		s, err := Unquote(raw)
		v.SetString(s)
		return err
	case (c == 't' || c == 'f') && v.Kind() == reflect.Bool:
		v.SetBool(c == 't')
		return nil
	case c == '-' || c >= '0' && c <= '9':
		return decodeNumber(raw, v)
	}
	return decodeAny(raw, v)
}

// decodeAny decodes an interface's value with encoding/json.
func decodeAny(raw []byte, v reflect.Value) error {
	if v.Kind() != reflect.Interface || v.NumMethod() > 0 || !v.IsNil() {
		return ErrElse
	}
	return json.Unmarshal(raw, v.Addr().Interface())
}

func decodeNumber(raw []byte, v reflect.Value) error {
	s := string(raw)
	switch v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, v.Type().Bits())
		v.SetInt(n)
		return err
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(s, 10, v.Type().Bits())
		v.SetUint(n)
		return err
	case reflect.Float32, reflect.Float64:
		n, err := strconv.ParseFloat(s, v.Type().Bits())
		v.SetFloat(n)
		return err
	}
	return decodeAny(raw, v)
}

func decodeList(data []byte, i int, v reflect.Value, depth int) (int, error) {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	return scan(data, i, '[', ']', func(i int) (int, error) {
		if v.Len() == v.Cap() {
			v.Grow(max(v.Len(), 2))
		}
		v.SetLen(v.Len() + 1)
		v.Index(v.Len() - 1).SetZero()
		return decode(data, i, v.Index(v.Len()-1), depth)
	})
}

func decodeStruct(data []byte, i int, v reflect.Value, depth int) (int, error) {
	fields := fieldsOf(v.Type())
	return scan(data, i, '{', '}', func(i int) (int, error) {
		key, i, err := readKey(data, i)
		if err != nil {
			return i, err
		}
		f, err := fields.find(key)
		switch {
		case err != nil:
			return i, err
		case f == nil:
			return skipValue(data, i)
		}
		return decode(data, i, v.FieldByIndex(f.index), depth)
	})
}

func decodeMap(data []byte, i int, v reflect.Value, depth int) (int, error) {
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	return scan(data, i, '{', '}', func(i int) (int, error) {
		key, i, err := readKey(data, i)
		if err != nil {
			return i, err
		}
		item := reflect.New(v.Type().Elem()).Elem()
		end, err := decode(data, i, item, depth)
		if err == nil {
			v.SetMapIndex(reflect.ValueOf(string(key)), item)
		}
		return end, err
	})
}
