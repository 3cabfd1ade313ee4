package config

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/agent/cluster"
)

// shape compares a document with its Go type before it is decoded, because the decoder reports only the first error,
// and in terms of Go types.
type shape struct {
	file string
	errs []error
}

// shapeOf returns every error as FILE:LINE:COLUMN: KEY = VALUE: what is allowed.
func shapeOf(file string, doc *yaml.Node, into any) error {
	s := &shape{file: file}
	if len(doc.Content) > 0 {
		s.value("", doc.Content[0], reflect.TypeOf(into))
	}
	return errors.Join(s.errs...)
}

func (s *shape) bad(key string, n *yaml.Node, want string) {
	what := key
	if n.Kind == yaml.ScalarNode {
		what = strings.TrimPrefix(key+" = "+n.Value, " = ")
	}
	if what != "" {
		what += ": "
	}
	at := fmt.Sprintf("%d:%d", n.Line, n.Column)
	if s.file != "" {
		at = s.file + ":" + at
	}
	s.errs = append(s.errs, fmt.Errorf("%s: %s%s", at, what, want))
}

// value checks a key's value.
func (s *shape) value(key string, n *yaml.Node, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Tag == "!!null" || t == reflect.TypeFor[json.RawMessage]():
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		s.text(key, n, t)
	case t.Kind() == reflect.Struct:
		s.mapping(key, n, t)
	case t.Kind() == reflect.Slice && n.Kind != yaml.SequenceNode:
		s.bad(key, n, "want a list, like "+example(t))
	case t.Kind() == reflect.Slice:
		for i, c := range n.Content {
			s.value(fmt.Sprintf("%s[%d]", key, i), c, t.Elem())
		}
	default:
		s.scalar(key, n, t)
	}
}

// text checks a value whose type parses itself.
func (s *shape) text(key string, n *yaml.Node, t reflect.Type) {
	v := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || v.UnmarshalText([]byte(n.Value)) != nil {
		s.bad(key, n, "want one like "+example(t))
	}
}

func (s *shape) scalar(key string, n *yaml.Node, t reflect.Type) {
	want, tag := "text", "!!str"
	switch t.Kind() {
	case reflect.Bool:
		want, tag = "true or false", "!!bool"
	case reflect.Int, reflect.Uint32:
		want, tag = "a number", "!!int"
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == tag && n.Decode(reflect.New(t).Interface()) == nil:
	case n.Kind == yaml.ScalarNode && tag == "!!str":
		s.bad(key, n, fmt.Sprintf("want text: %q, in quotes", n.Value))
	default:
		s.bad(key, n, "want "+want)
	}
}

func (s *shape) mapping(key string, n *yaml.Node, t reflect.Type) {
	if n.Kind != yaml.MappingNode {
		s.bad(key, n, "want keys with values, like "+example(t))
		return
	}
	seen := map[string]*yaml.Node{} // by the key in lower case
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		path := strings.TrimPrefix(key+"."+k.Value, ".")
		f, ok := fieldOf(t, k.Value)
		lower := strings.ToLower(k.Value)
		before := seen[lower]
		seen[lower] = k
		switch {
		case ok && before != nil:
			s.bad(path, &yaml.Node{Line: k.Line, Column: k.Column}, fmt.Sprintf("the key occurs twice: line %d has %s", before.Line, before.Value))
		case k.Tag == "!!merge":
			s.merged(key, v, t)
		case ok && v.Kind == yaml.ScalarNode && !allowedValue(t, f, v.Value):
			s.bad(path, v, "want one of "+strings.Join(allowed()[t][keyOf(f)], ", "))
		case ok:
			s.value(path, v, f.Type)
		default:
			s.bad(path, &yaml.Node{Line: k.Line, Column: k.Column}, "there is no such key: "+nearest(k.Value, namesOf(t)))
		}
	}
}

// allowed returns the values of the keys that accept only a few.
func allowed() map[reflect.Type]map[string][]string {
	return map[reflect.Type]map[string][]string{
		reflect.TypeFor[cluster.Backend](): {"type": cluster.BackendTypes()},
	}
}

func allowedValue(t reflect.Type, f reflect.StructField, value string) bool {
	values, ok := allowed()[t][keyOf(f)]
	return !ok || slices.Contains(values, value)
}

// merged checks the mapping of a merge key ("<<").
func (s *shape) merged(key string, n *yaml.Node, t reflect.Type) {
	if n.Kind != yaml.SequenceNode {
		s.value(key, n, t)
		return
	}
	for _, c := range n.Content {
		s.value(key, c, t)
	}
}

// fieldOf returns the field for a key; like the decoder, it ignores case.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for f := range t.Fields() {
		if embedded(f) {
			if in, ok := fieldOf(f.Type, key); ok {
				return in, true
			}
		}
		if name := keyOf(f); name != "" && strings.EqualFold(name, key) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// embedded reports whether the decoder takes the keys of a field's own fields.
func embedded(f reflect.StructField) bool {
	return f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag.Get("json") == ""
}

func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return strings.TrimPrefix(name, "-")
}

func namesOf(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		if embedded(f) {
			names = append(names, namesOf(f.Type)...)
		} else if name := keyOf(f); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// nearest suggests the key that was probably meant, or lists all keys.
func nearest(word string, names []string) string {
	if closest, ok := ClosestKey(word, names); ok {
		return fmt.Sprintf("did you mean %q?", closest)
	}
	return "want one of " + strings.Join(names, ", ")
}

// ClosestKey returns the key that a word was probably meant to be: at most two letters differ, and fewer than half of
// them.
func ClosestKey(word string, names []string) (key string, ok bool) {
	const typos = 2
	least := min(typos, len(word)/2) + 1
	for _, n := range names {
		if d := distance(strings.ToLower(word), strings.ToLower(n)); d < least {
			key, least = n, d
		}
	}
	return key, key != ""
}

// distance returns the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// example returns a valid example of a type's value. For a mapping it contains the first required key.
func example(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[netip.Addr]():
		return "192.0.2.11"
	case t == reflect.TypeFor[netip.Prefix]():
		return "10.244.0.0/16"
	case t == reflect.TypeFor[Duration]():
		return `"5m"`
	case t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]():
		return "[" + example(t.Elem()) + "]"
	case t.Kind() == reflect.Bool:
		return "true"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Uint32:
		return "1"
	case t.Kind() == reflect.Struct:
		fields := slices.DeleteFunc(slices.Collect(t.Fields()), func(f reflect.StructField) bool { return keyOf(f) == "" })
		i := max(0, slices.IndexFunc(fields, func(f reflect.StructField) bool { return !strings.Contains(f.Tag.Get("json"), ",omit") }))
		return "{" + keyOf(fields[i]) + ": " + example(fields[i].Type) + "}"
	}
	return `"..."`
}
