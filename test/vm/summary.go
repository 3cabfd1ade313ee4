package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// summarize returns a table of records, with a row per feature and a column per kernel. A cell counts the tests that
// need the feature and ran there. It also returns the tests that ran nowhere, and the tests that run only on request and
// were not requested.
func summarize(records []kerneltest.Record) (table string, nowhere, notRun []string) {
	requested := map[string]bool{}
	for _, r := range records {
		if name := r.Package + " " + r.Test + ": set " + r.Feature; r.OptIn() {
			requested[name] = requested[name] || r.Ran
		}
	}
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		if !requested[name] {
			notRun = append(notRun, name)
		}
	}
	table, nowhere = summarizeFeatures(slices.DeleteFunc(slices.Clone(records), kerneltest.Record.OptIn))
	return table, nowhere, notRun
}

func summarizeFeatures(records []kerneltest.Record) (table string, nowhere []string) {
	type cell struct{ feature, where string }
	ran, skipped := map[cell]int{}, map[cell]int{}
	features, kernels, anywhere := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range records {
		c := cell{r.Feature, r.Where}
		if features[r.Feature], kernels[r.Where] = true, true; r.Ran {
			ran[c]++
		} else {
			skipped[c]++
		}
		name := r.Package + " " + r.Test + ", which needs " + r.Feature
		anywhere[name] = anywhere[name] || r.Ran
	}
	columns := slices.SortedFunc(maps.Keys(kernels), byAge)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "tests that need\t%s\n", strings.Join(columns, "\t"))
	for _, f := range slices.Sorted(maps.Keys(features)) {
		fmt.Fprint(w, f)
		for _, k := range columns {
			fmt.Fprint(w, "\t"+count(ran[cell{f, k}], skipped[cell{f, k}]))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // writes to memory
	for _, name := range slices.Sorted(maps.Keys(anywhere)) {
		if !anywhere[name] {
			nowhere = append(nowhere, name)
		}
	}
	return b.String(), nowhere
}

func count(ran, skipped int) string {
	switch {
	case ran+skipped == 0:
		return "-"
	case skipped == 0:
		return fmt.Sprintf("%d ran", ran)
	case ran == 0:
		return fmt.Sprintf("lacks it: %d skipped", skipped)
	}
	return fmt.Sprintf("%d ran, %d skipped for another", ran, skipped)
}

// byAge sorts the host first, then 6.1 before 6.12.
func byAge(a, b string) int { return slices.Compare(numbers(a), numbers(b)) }
