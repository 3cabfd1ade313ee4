package kerneltest

import "strings"

// Diff returns the lines that one of two texts has more often than the other: "- " before those of the first, "+ " before
// those of the second. It is empty if both have the same lines, in any order.
func Diff(before, after string) string {
	var b strings.Builder
	for _, line := range DiffLines(lines(before), lines(after)) {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// DiffLines is Diff for lists of lines.
func DiffLines(before, after []string) (out []string) {
	only := func(sign string, x, y []string) {
		have := map[string]int{}
		for _, line := range y {
			have[line]++
		}
		for _, line := range x {
			if have[line]--; have[line] < 0 {
				out = append(out, sign+line)
			}
		}
	}
	only("- ", before, after)
	only("+ ", after, before)
	return out
}
