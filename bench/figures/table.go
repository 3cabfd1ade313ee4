package figures

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// none is the cell for a missing value.
const none = "-"

func header() []string {
	return []string{"case", "", "by", "Fairlead, ms", "p99", "reference, ms", "p99", "floor, ms", "times as fast", "times the floor", "CPU, ms", "reference", "memory, MiB", "reference"}
}

func cells(r Row) []string {
	return append(
		[]string{r.Case, r.Verb, r.By, ms(r.Ours.Median), ms(r.Ours.P99)},
		part(r.Reference, func(s Stat) string { return ms(s.Median) }),
		part(r.Reference, func(s Stat) string { return ms(s.P99) }),
		part(r.Floor, func(s Stat) string { return ms(s.Median) }),
		spread(r.Faster, 1), spread(r.OverFloor, 2),
		cpu(r.Ours), part(r.Reference, cpu),
		mib(r.Ours), part(r.Reference, mib))
}

func part(s *Stat, text func(Stat) string) string {
	if s == nil {
		return none
	}
	return text(*s)
}

// ms formats milliseconds with at most three digits.
func ms(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func cpu(s Stat) string {
	if s.CPU == 0 {
		return none
	}
	return ms(s.CPU)
}

func mib(s Stat) string {
	if s.Peak == 0 {
		return none
	}
	return fmt.Sprintf("%.1f", float64(s.Peak)/1024)
}

func spread(r *Ratio, digits int) string {
	if r == nil {
		return none
	}
	return fmt.Sprintf("%.*f (%.*f-%.*f)", digits, r.Median, digits, r.P10, digits, r.P90)
}

// Table formats rows for a terminal.
func Table(rows []Row) string {
	if alone(rows) {
		lines := [][]string{{"case", "", "by", "ms", "p99", "CPU, ms"}}
		for _, r := range rows {
			lines = append(lines, []string{r.Case, r.Verb, r.By, ms(r.Ours.Median), ms(r.Ours.P99), cpu(r.Ours)})
		}
		return columns(lines, 3)
	}
	lines := [][]string{header()}
	for _, r := range rows {
		lines = append(lines, cells(r))
	}
	return columns(lines, 3)
}

// alone reports whether no row has a comparison.
func alone(rows []Row) bool {
	for _, r := range rows {
		if r.Reference != nil || r.Floor != nil {
			return false
		}
	}
	return true
}

// columns aligns cells, the first few to the left and the others to the right.
func columns(lines [][]string, left int) string {
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		text := ""
		for i, c := range l {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i < left {
				text += c + pad + "  "
			} else {
				text += pad + c + "  "
			}
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	return b.String()
}

// markdown formats lines as a Markdown table.
func markdown(lines [][]string, left int) string {
	var b strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(l, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", left) + strings.Repeat("--:|", len(l)-left) + "\n")
		}
	}
	return b.String()
}
