package cluster

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// maxDifferences is the number of differences of one object that are shown.
const maxDifferences = 12

// differences compares two versions of an object, and returns lines such as "spec.replicas: 1 -> 2".
func differences(before, after map[string]any) []string {
	var d differ
	for _, o := range []map[string]any{before, after} {
		delete(o, "status")
		meta, _ := o["metadata"].(map[string]any)
		for _, key := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
			delete(meta, key)
		}
		annotations, _ := meta["annotations"].(map[string]any)
		delete(annotations, appsv1.DeprecatedTemplateGeneration) // the API counts, and has the changes themselves
	}
	d.compare("", before, after)
	if n := len(d.lines) - maxDifferences; n > 0 {
		d.lines = append(d.lines[:maxDifferences], fmt.Sprintf("and %d more", n))
	}
	return d.lines
}

type differ struct{ lines []string }

func (d *differ) compare(path string, a, b any) {
	if reflect.DeepEqual(a, b) {
		return
	}
	x, isMap := a.(map[string]any)
	y, isMap2 := b.(map[string]any)
	if isMap && isMap2 {
		d.maps(path, x, y)
		return
	}
	p, isList := a.([]any)
	q, isList2 := b.([]any)
	if isList && isList2 {
		d.lists(path, p, q)
		return
	}
	s, isText := a.(string)
	t, isText2 := b.(string)
	if isText && isText2 && strings.Contains(s+t, "\n") {
		d.texts(path, strings.Split(s, "\n"), strings.Split(t, "\n"))
		return
	}
	d.lines = append(d.lines, fmt.Sprintf("%s: %s -> %s", path, short(a), short(b)))
}

// texts lists the lines that only one of two texts has.
func (d *differ) texts(path string, a, b []string) {
	for _, l := range a {
		if !slices.Contains(b, l) {
			d.lines = append(d.lines, path+": - "+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			d.lines = append(d.lines, path+": + "+l)
		}
	}
	if n := len(d.lines); n == 0 || !strings.HasPrefix(d.lines[n-1], path+": ") {
		d.lines = append(d.lines, path+": the order of the lines")
	}
}

func (d *differ) maps(path string, a, b map[string]any) {
	keys := sortedKeys(a)
	for _, k := range sortedKeys(b) {
		if _, has := a[k]; !has {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		name := k
		if path != "" {
			name = path + "." + k
		}
		d.compare(name, a[k], b[k])
	}
}

// lists compares two lists. Elements with a name are compared by name.
func (d *differ) lists(path string, a, b []any) {
	x, named := byName(a)
	y, named2 := byName(b)
	if named && named2 {
		d.maps(path, x, y)
		return
	}
	for i := range max(len(a), len(b)) {
		d.compare(fmt.Sprintf("%s[%d]", path, i), at(a, i), at(b, i))
	}
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

func byName(list []any) (map[string]any, bool) {
	m := map[string]any{}
	for _, v := range list {
		o, _ := v.(map[string]any)
		name, _ := o["name"].(string)
		if name == "" || m[name] != nil {
			return nil, false
		}
		m[name] = v
	}
	return m, len(m) > 0
}

// maxValue is the number of bytes of a value that are shown.
const maxValue = 60

// short returns a value as JSON, shortened. A missing value is "none".
func short(v any) string {
	if v == nil {
		return "none"
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(raw) > maxValue {
		return string(raw[:maxValue]) + "..."
	}
	return string(raw)
}
