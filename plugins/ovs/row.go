package ovs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// row is a row of the database, as much of it as was asked for.
type row ovsdb.Row

func (r row) uuid() ovsdb.UUID {
	u, _ := r["_uuid"].(ovsdb.UUID)
	return u
}

// text is a string, "" where an optional one is absent.
func (r row) text(column string) string {
	s, _ := r[column].(string)
	return s
}

// number is an integer; an optional one may be absent.
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

// differs says where a row is not as wanted. Of a map only the wanted keys
// count: other software may have its own.
func (r row) differs(want ovsdb.Row) (d []string) {
	for _, column := range slices.Sorted(maps.Keys(want)) {
		if _, ok := want[column].(ovsdb.OvsMap); ok {
			d = append(d, mapDiffers(column, r.strings(column), toStrings(want[column]))...)
			continue
		}
		if have, want := words(r[column]), words(want[column]); have != want {
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

// words is a value as ovs-vsctl would show it.
func words(v any) string {
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

// columns are those of a wanted row.
func columns(want ovsdb.Row) []string { return slices.Collect(maps.Keys(want)) }

func is(column string, v any) *ovsdb.Condition {
	c := ovsdb.NewCondition(column, ovsdb.ConditionEqual, v)
	return &c
}

func includes(column string, v any) *ovsdb.Condition {
	c := ovsdb.NewCondition(column, ovsdb.ConditionIncludes, v)
	return &c
}

// ovsMap and ovsSet are values as the database has them.
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

// mutate puts a row into, or takes it from, the references of the rows that meet
// a condition.
func mutate(table string, where *ovsdb.Condition, column string, m ovsdb.Mutator, id ovsdb.UUID) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: []ovsdb.Condition{*where},
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation(column, m, ovsSet(id))}}
}
