package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
)

// figures maps each measurement to its samples.
type figures map[of][]float64

type of struct {
	what, side string
	crowd      int
}

func (f figures) add(what, side string, crowd int, v float64) {
	k := of{what, side, crowd}
	f[k] = append(f[k], v)
}

// table returns a row for each measurement and number of nodes.
func (f figures) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | nodes | %s | %s |\n|---|---|---|---|\n", flanneldSide, ours)
	whats := map[string]bool{}
	for k := range f {
		whats[k.what] = true
	}
	for _, what := range slices.Sorted(maps.Keys(whats)) {
		for _, n := range crowds() {
			a, b2 := f[of{what, flanneldSide, n}], f[of{what, ours, n}]
			if len(a)+len(b2) > 0 {
				fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", what, n, summary(a), summary(b2))
			}
		}
	}
	return b.String()
}

// summary formats the median, the minimum and the maximum.
func summary(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	v = slices.Sorted(slices.Values(v))
	median := (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	if v[0] == v[len(v)-1] {
		return number(median)
	}
	return fmt.Sprintf("%s (%s to %s)", number(median), number(v[0]), number(v[len(v)-1]))
}

func number(v float64) string {
	if v == math.Trunc(v) || v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func sorted(m map[string]string) []string {
	out := slices.Sorted(maps.Keys(m))
	slices.Reverse(out) // nodes/ before blocks/
	return out
}

// begin and finish mark the table's place in the page.
const begin, finish = "<!-- figures -->\n", "<!-- end of figures -->"

func write(page, table string) error {
	raw, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	_, after, ok2 := strings.Cut(rest, finish)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for figures: want the lines %q and %q", page, strings.TrimSpace(begin), finish)
	}
	return os.WriteFile(page, []byte(before+begin+table+finish+after), 0o644)
}
