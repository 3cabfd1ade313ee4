package figures

import (
	"fmt"
	"strings"
)

// PageName is the file name of the page that Page writes.
const PageName = "benchmarks.md"

// about describes what a group measures.
func about(group string) string {
	return map[string]string{
		"lists":        "Whole operations of a list, as its runtime sees them.",
		"examples":     "The project's example lists.",
		"plugins":      "The time that the runtime waits for the plugin's own processes, without other plugins of the list.",
		"at once":      "Many attachments at the same time: the time until the last one is done.",
		"in use":       "host-local alone, with addresses allocated to other containers.",
		"first packet": "From the start of ADD to the first answered ping. One ping is sent each millisecond after ADD returned.",
		"node":         "The start and the drain of a node, with 16 pods at once: the time until the last pod is done.",
		"present":      "One more attachment next to the given number, on four bridges and point-to-point links, in turn with\na host without attachments. \"times the first\" compares the two.",
	}[group]
}

// Text formats a report for a terminal.
func (r Report) Text(targets []Target) (text string) {
	for _, g := range r.Groups() {
		text += "\n" + g + ": " + about(g) + "\n" + Table(r.Of(g)) + notes(r.Of(g))
	}
	if lines := targetLines(targets, r, false); len(lines) > 1 {
		text += "\n" + columns(lines, 2)
	}
	return text
}

// notes formats figures of some rows that have no column.
func notes(rows []Row) (text string) {
	for _, r := range rows {
		if r.OverNothing != nil {
			text += fmt.Sprintf("%s %s, %s: %s times as long as %d empty programs.\n", r.Case, r.Verb, r.By, spread(r.OverNothing, 1), r.Jobs)
		}
		if r.Reference != nil && r.Reference.Silent > 0 {
			text += fmt.Sprintf("%s %s: in %d of %d rounds, the reference's containers did not answer in time.\n", r.Case, r.Verb, r.Reference.Silent, r.Reference.Rounds)
		}
		if r.OverFirst != 0 {
			text += fmt.Sprintf("%s %s, %s: %.2f times the first", r.Case, r.Verb, r.By, r.OverFirst)
			if r.FloorGrows != 0 {
				text += fmt.Sprintf("; the floor %.2f times its own", r.FloorGrows)
			}
			text += ".\n"
		}
	}
	return text
}

// Page returns the page and its charts, by file name. Others are reports of other machines.
func (r Report) Page(targets []Target, others ...Report) map[string]string {
	files := map[string]string{}
	var b strings.Builder
	fmt.Fprintf(&b, introduction, r.Rounds, r.Machine)
	for name, c := range r.charts() {
		files[name] = c.SVG()
	}
	for _, name := range []string{chartADD, chartDEL} {
		if files[name] != "" {
			fmt.Fprintf(&b, "![%s](%s)\n\n", r.charts()[name].Title, name)
		}
	}
	b.WriteString("## Targets\n\n" + markdown(targetLines(targets, r, true), 2))
	writeGroups(&b, r)
	for _, o := range others {
		fmt.Fprintf(&b, "\n## On another machine\n\n%s, %d rounds.\n", upper(o.Machine), o.Rounds)
		writeGroups(&b, o)
	}
	files[PageName] = b.String()
	return files
}

func writeGroups(b *strings.Builder, r Report) {
	for _, g := range r.Groups() {
		lines := [][]string{header()}
		for _, row := range r.Of(g) {
			lines = append(lines, cells(row))
		}
		fmt.Fprintf(b, "\n## %s\n\n%s\n\n%s", upper(g), about(g), markdown(lines, 3))
		if n := notes(r.Of(g)); n != "" {
			fmt.Fprintf(b, "\n%s", strings.ReplaceAll(n, "\n", "  \n"))
		}
	}
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// These are the charts' file names.
const (
	chartADD = "benchmarks-add.svg"
	chartDEL = "benchmarks-del.svg"
)

// charts returns the charts of the lists, by file name.
func (r Report) charts() map[string]Chart {
	all := map[string]Chart{}
	for name, verb := range map[string]string{chartADD: "ADD", chartDEL: "DEL"} {
		c := Chart{Title: "Time of " + verb, Unit: "ms"}
		index := map[string]int{}
		for _, row := range r.Of("lists") {
			if row.Verb != verb || row.Reference == nil || row.Floor == nil || strings.HasPrefix(row.By, Reference) {
				continue
			}
			i, ok := index[row.Case]
			if !ok {
				i = len(c.Groups)
				index[row.Case] = i
				c.Groups = append(c.Groups, Group{Label: row.Case, Bars: []Bar{{Reference, row.Reference.Median}, {Floor, row.Floor.Median}}})
				c.use(Reference, Floor)
			}
			c.Groups[i].Bars = append(c.Groups[i].Bars, Bar{row.By, row.Ours.Median})
			c.use(row.By)
		}
		if len(c.Groups) > 0 {
			all[name] = c
		}
	}
	return all
}

func (c *Chart) use(names ...string) {
	for _, n := range names {
		known := false
		for _, s := range c.Series {
			known = known || s == n
		}
		if !known {
			c.Series = append(c.Series, n)
		}
	}
}

const introduction = `# Benchmarks

` + "`make bench`" + ` wrote this page. Every case runs Fairlead's plugins, the reference plugins (v1.10.0) and the floor in
turn (A B C A B C), at most %d rounds, each side on its own host. The reference libcni (v1.3.0) is the runtime
for both, in a process that keeps running, so that the start of a runtime does not count. "Fairlead" is our plugins
under that runtime, and "own runtime" means Fairlead's libcni in the same way. The floor is the start of an empty Go
program plus the same kernel work by plain calls in one process, without configuration, addresses or a record. Every
program is a copy of the linker's output, as an installed one is.

Times are medians of whole operations in milliseconds. 99 of 100 rounds need at most the time p99. Ratios are from
pairs that ran one after the other, with the 10th and 90th percentile in parentheses. CPU is the processor time of the
runtime's process and of all processes that it started. Memory is the sum of the peaks of the processes of one ADD.
/run is in memory, and /var/lib on a disk. Compare the ratios, not the absolute times.

Machine: %s.

`
