package ovs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// row is a database row with the selected columns.
type row ovsdb.Row

func (r row) uuid() ovsdb.UUID {
	u, _ := r["_uuid"].(ovsdb.UUID)
	return u
}

// text returns a string column, or "" if an optional one is absent.
func (r row) text(column string) string {
	s, _ := r[column].(string)
	return s
}

// number returns an integer column, and whether it is present.
func (r row) number(column string) (int, bool) {
	f, ok := r[column].(float64)
	return int(f), ok
}

func (r row) strings(column string) map[string]string { return toStrings(r[column]) }

func toStrings(v any) map[string]string {
	out := map[string]string{}
	m, _ := v.(ovsdb.OvsMap)
	for k, v := range m.GoMap {
		out[fmt.Sprint(k)] = fmt.Sprint(v)
	}
	return out
}

// differs returns the columns of a row that differ. In a map only the wanted keys count, because other software may
// have its own.
func (r row) differs(want ovsdb.Row) (d []string) {
	for _, column := range slices.Sorted(maps.Keys(want)) {
		if _, ok := want[column].(ovsdb.OvsMap); ok {
			d = append(d, mapDiffers(column, r.strings(column), toStrings(want[column]))...)
			continue
		}
		if have, want := format(r[column]), format(want[column]); have != want {
			d = append(d, fmt.Sprintf("%s is %s, want %s", column, have, want))
		}
	}
	return d
}

func mapDiffers(column string, have, want map[string]string) (d []string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if have[key] != want[key] {
			d = append(d, fmt.Sprintf("%s:%s is %q, want %q", column, key, have[key], want[key]))
		}
	}
	return d
}

// mapExceeds returns the keys that a map must not have, unless their value is the default.
func mapExceeds(column string, have, defaults map[string]string) (d []string) {
	for _, key := range slices.Sorted(maps.Keys(defaults)) {
		if have[key] != "" && have[key] != defaults[key] {
			d = append(d, fmt.Sprintf("%s:%s is %q, want none", column, key, have[key]))
		}
	}
	return d
}

// format formats a value as ovs-vsctl does.
func format(v any) string {
	set, ok := v.(ovsdb.OvsSet)
	if !ok {
		return fmt.Sprint(v)
	}
	if len(set.GoSet) == 1 {
		return fmt.Sprint(set.GoSet[0])
	}
	list := make([]string, len(set.GoSet))
	for i, e := range set.GoSet {
		list[i] = fmt.Sprint(e)
	}
	slices.Sort(list)
	return "[" + strings.Join(list, " ") + "]"
}

// columns returns the columns of a wanted row.
func columns(want ovsdb.Row) []string { return slices.Collect(maps.Keys(want)) }

func is(column string, v any) *ovsdb.Condition {
	c := ovsdb.NewCondition(column, ovsdb.ConditionEqual, v)
	return &c
}

func includes(column string, v any) *ovsdb.Condition {
	c := ovsdb.NewCondition(column, ovsdb.ConditionIncludes, v)
	return &c
}

// ovsMap and ovsSet return values in the database's types.
func ovsMap(m map[string]string) ovsdb.OvsMap {
	out := ovsdb.OvsMap{GoMap: map[any]any{}}
	for k, v := range m {
		out.GoMap[k] = v
	}
	return out
}

func ovsSet[T any](list ...T) ovsdb.OvsSet {
	out := ovsdb.OvsSet{GoSet: make([]any, len(list))}
	for i, v := range list {
		out.GoSet[i] = v
	}
	return out
}

func insert(table, id string, r ovsdb.Row) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationInsert, Table: table, UUIDName: id, Row: r}
}

// mutate adds a row to, or removes it from, a reference column of the rows that match a condition.
func mutate(table string, where *ovsdb.Condition, column string, m ovsdb.Mutator, id ovsdb.UUID) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: []ovsdb.Condition{*where},
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(column, m, ovsSet(id))}}
}
