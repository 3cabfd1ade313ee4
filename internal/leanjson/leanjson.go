// Package leanjson writes JSON that encoding/json reads. A short-lived process encodes each type once, so this package
// does not build encoders first. It omits zero fields with omitzero or omitempty. It does not write embedded structs,
// and does not support maps, channels or functions.
package leanjson

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Append appends v as JSON.
func Append(b []byte, v any) ([]byte, error) { return appendValue(b, reflect.ValueOf(v)) }

// Appender is implemented by types that encode themselves.
type Appender interface{ AppendJSON([]byte) ([]byte, error) }

func appendValue(b []byte, v reflect.Value) ([]byte, error) {
	if !v.IsValid() {
		return append(b, "null"...), nil
	}
	if v.CanInterface() {
		switch m := v.Interface().(type) {
		case Appender:
			return m.AppendJSON(b)
		case encoding.TextMarshaler:
			text, err := m.MarshalText()
			return appendString(b, string(text)), err
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return appendValue(b, v.Elem())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.String:
		return appendString(b, v.String()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	case reflect.Slice, reflect.Array:
		return appendList(b, v)
	case reflect.Struct:
		return appendStruct(b, v)
	}
	return b, fmt.Errorf("leanjson: %s cannot be written", v.Type())
}

func appendList(b []byte, v reflect.Value) (_ []byte, err error) {
	if v.Kind() == reflect.Slice && v.IsNil() {
		return append(b, "null"...), nil
	}
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, v.Index(i)); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func appendStruct(b []byte, v reflect.Value) (_ []byte, err error) {
	t := v.Type()
	start := len(b) + 1
	b = append(b, '{')
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" || strings.Contains(options, "omit") && v.Field(i).IsZero() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		if b, err = appendValue(b, v.Field(i)); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(s) // a string can always be encoded
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
