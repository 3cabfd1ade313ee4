package cni

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cni/rawjson"
)

// narrow finds the innermost value of data that does not fit the type that v has there. It decodes one level after the
// other, so it also finds values that a type's own decoder rejects, for which encoding/json reports no position.
func narrow(data []byte, v any, err error) (path, problem string, culprit error) {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return "", err.Error(), err
	}
	t = t.Elem()
	for {
		step, raw, inner, innerErr := firstBad(data, t)
		if innerErr == nil {
			return path, wanted(t, err), err
		}
		if path != "" && !strings.HasPrefix(step, "[") {
			step = "." + step
		}
		path += step
		data, t, err = raw, inner, innerErr
	}
}

// firstBad returns the first part of data, one level down, that its type rejects.
func firstBad(data []byte, t reflect.Type) (step string, raw []byte, inner reflect.Type, err error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if decodesItself(t) {
		return "", nil, nil, nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		members, _ := rawjson.Members(data)
		for _, m := range members {
			inner := memberType(t, m.Key)
			if err := tryDecode(m.Raw, inner); err != nil {
				return m.Key, m.Raw, inner, err
			}
		}
	case reflect.Slice, reflect.Array:
		elements, _ := rawjson.Elements(data)
		for i, e := range elements {
			if err := tryDecode(e.Raw, t.Elem()); err != nil {
				return "[" + strconv.Itoa(i) + "]", e.Raw, t.Elem(), err
			}
		}
	}
	return "", nil, nil, nil
}

func tryDecode(raw []byte, t reflect.Type) error {
	if t == nil {
		return nil
	}
	return json.Unmarshal(raw, reflect.New(t).Interface())
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// memberType returns the type that a key is decoded into, or nil.
func memberType(t reflect.Type, key string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	var exact, folded *reflect.StructField // the outermost, as in encoding/json
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || (f.Anonymous && name == "") {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if name == key && (exact == nil || len(f.Index) < len(exact.Index)) {
			exact = &f
		}
		if strings.EqualFold(name, key) && (folded == nil || len(f.Index) < len(folded.Index)) {
			folded = &f
		}
	}
	if exact = cmp.Or(exact, folded); exact == nil {
		return nil
	}
	return exact.Type
}

// wanted describes what a type allows.
func wanted(t reflect.Type, err error) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case t == reflect.TypeFor[netip.Prefix]():
		return "want an address with its prefix length, like 10.1.0.0/16 or fd00::/64"
	case t == reflect.TypeFor[netip.Addr]():
		return "want an address, like 10.1.0.1 or fd00::1"
	case !ok:
		return err.Error()
	case decodesItself(t) && typeErr.Type != nil && typeErr.Type != t:
		t = typeErr.Type
	}
	if typeErr.Value == "string" && (t.Kind() == reflect.Int || t.Kind() == reflect.Int64) {
		return "want a whole number, without quotes" // the range would say nothing
	}
	return "want " + noun(t)
}

func noun(t reflect.Type) string {
	switch k := t.Kind(); k {
	case reflect.Pointer:
		return noun(t.Elem())
	case reflect.Bool:
		return "a boolean: true or false"
	case reflect.String:
		return "a string"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list, each element " + noun(t.Elem())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int, reflect.Int64:
		high := uint64(1)<<(t.Bits()-1) - 1
		return fmt.Sprintf("a whole number from -%d to %d", high+1, high)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-t.Bits()))
	default:
		return "another type of value"
	}
}
