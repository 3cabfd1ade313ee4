package figures

import "fmt"

// Target is a performance target of the project: a ratio of one operation.
type Target struct {
	Text  string
	Limit float64
	Most  bool // the limit is a maximum; otherwise a minimum
	Value func(Report) *float64
}

// measured returns the target's figure and whether it is met.
func (t Target) measured(r Report) (figure, verdict string) {
	v := t.Value(r)
	switch {
	case v == nil:
		return none, "not measured"
	case t.Most && *v <= t.Limit, !t.Most && *v >= t.Limit:
		return t.figure(*v), "reached"
	}
	return t.figure(*v), "**not reached**"
}

func (t Target) figure(v float64) string {
	if t.Most {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func (t Target) limit() string {
	if t.Most {
		return fmt.Sprintf("at most %g", t.Limit)
	}
	return fmt.Sprintf("at least %g", t.Limit)
}

// Faster returns a row's speed as a multiple of the reference plugins' speed.
func Faster(name, verb, by string) func(Report) *float64 {
	return of(name, verb, by, func(r *Row) *float64 { return middle(r.Faster) })
}

// OverFloor returns a row's time as a multiple of the floor's.
func OverFloor(name, verb, by string) func(Report) *float64 {
	return of(name, verb, by, func(r *Row) *float64 { return middle(r.OverFloor) })
}

// OverNothing returns a row's time as a multiple of the time of empty processes.
func OverNothing(name, verb, by string) func(Report) *float64 {
	return of(name, verb, by, func(r *Row) *float64 { return middle(r.OverNothing) })
}

// Memory returns the peak of a row's process tree as a fraction of the reference's.
func Memory(name, verb, by string) func(Report) *float64 {
	return of(name, verb, by, func(r *Row) *float64 { return some(r.Memory) })
}

// OverFirst returns a row's time as a multiple of the time without existing attachments.
func OverFirst(name, verb, by string) func(Report) *float64 {
	return of(name, verb, by, func(r *Row) *float64 { return some(r.OverFirst) })
}

func of(name, verb, by string, value func(*Row) *float64) func(Report) *float64 {
	return func(r Report) *float64 {
		if row := r.find(name, verb, by); row != nil {
			return value(row)
		}
		return nil
	}
}

func middle(r *Ratio) *float64 {
	if r == nil {
		return nil
	}
	return &r.Median
}

func some(v float64) *float64 {
	if v == 0 {
		return nil
	}
	return &v
}

// targetLines returns all targets, or only the measured ones.
func targetLines(targets []Target, r Report, all bool) [][]string {
	lines := [][]string{{"target", "", "measured", ""}}
	for _, t := range targets {
		figure, verdict := t.measured(r)
		if figure == none && !all {
			continue
		}
		lines = append(lines, []string{t.Text, t.limit(), figure, verdict})
	}
	return lines
}
