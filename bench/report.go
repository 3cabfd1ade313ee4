package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// row is one operation of one case.
type row struct {
	Case      string `json:"case"`
	Verb      string `json:"verb"`
	Ours      stat   `json:"ours"`
	Reference stat   `json:"reference"`
	Floor     stat   `json:"floor"`
	Speed     ratio  `json:"timesAsFastAsTheReference"`
	OverFloor ratio  `json:"timesTheFloor"`

	times map[string][]float64
}

// stat is in milliseconds.
type stat struct {
	Median float64 `json:"median"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
}

// ratio is of pairs that ran one after the other.
type ratio struct {
	Median float64 `json:"median"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
}

func (r *row) sum() {
	r.Ours, r.Reference, r.Floor = summary(r.times["ours"]), summary(r.times["reference"]), summary(r.times["floor"])
	r.Speed = ratio(summary(pairs(r.times["reference"], r.times["ours"])))
	r.OverFloor = ratio(summary(pairs(r.times["ours"], r.times["floor"])))
}

func pairs(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func summary(v []float64) stat {
	s := slices.Sorted(slices.Values(v))
	at := func(q float64) float64 { return s[int(q*float64(len(s)-1)+0.5)] }
	return stat{at(0.5), at(0.1), at(0.9)}
}

func cells(r row) []string {
	return []string{
		r.Case, r.Verb,
		fmt.Sprintf("%.1f", r.Ours.Median), fmt.Sprintf("%.1f", r.Reference.Median), fmt.Sprintf("%.1f", r.Floor.Median),
		fmt.Sprintf("%.1f (%.1f-%.1f)", r.Speed.Median, r.Speed.P10, r.Speed.P90),
		fmt.Sprintf("%.2f (%.2f-%.2f)", r.OverFloor.Median, r.OverFloor.P10, r.OverFloor.P90),
	}
}

func header() []string {
	return []string{"case", "", "ours, ms", "reference, ms", "floor, ms", "times as fast", "times the floor"}
}

// table is the figures for a terminal.
func table(rows []row) string {
	lines := [][]string{header()}
	for _, r := range rows {
		lines = append(lines, cells(r))
	}
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], len(c))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		for i, c := range l {
			if i < 2 {
				fmt.Fprintf(&b, "%-*s  ", width[i], c)
			} else {
				fmt.Fprintf(&b, "%*s  ", width[i], c)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// markdown is the page docs/benchmarks.md.
func markdown(rows []row, n int) string {
	var b strings.Builder
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	fmt.Fprintf(&b, `# Benchmarks

Written by `+"`make bench`"+`: every case runs Fairlead's plugin, the reference's (v1.9.1) and the floor in turn,
%d rounds, each as a runtime starts it: a process. The floor is the start of an empty Go program and the same
kernel work in process, without a configuration, an address store or a record. Medians; ratios are of pairs
that ran one after the other, with the 10th and 90th percentile in parentheses. /run is in memory and /var/lib on a disk, as on any machine.
Absolute times are this machine's and noisy; the ratios are what to compare.

Machine: virtual, %d processors, Linux %s, %s.

`, n, runtime.NumCPU(), strings.SplitN(strings.TrimSpace(string(release)), "-", 2)[0], runtime.Version())
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(header(), " | "), strings.Repeat("---|", len(header())))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells(r), " | "))
	}
	return b.String()
}
