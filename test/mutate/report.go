package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

// equivalents reads the list of mutants that change nothing that a test could see: an ID, a tab, and the reason.
func equivalents(path string) (map[string]string, error) {
	out := map[string]string{}
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, "\t")
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s: %q has no reason", path, line)
		}
		out[id] = reason
	}
	return out, nil
}

// report returns a table by area, and the mutants that no test caught.
func report(all map[string][]*mutant, share map[string]int, known map[string]*result, harmless map[string]string) string {
	var out, left strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "area\tpossible\ttried\tcaught\tequivalent\talive\tnot tried\t")
	var sum [5]int
	for _, area := range areas {
		var n [5]int // tried, caught, equivalent, alive, not tried
		for _, m := range all[area] {
			if n[0]+n[4] == share[area] {
				break
			}
			r := known[m.id()]
			switch {
			case r == nil:
				n[4]++
			case r.Outcome == invalid:
			case r.Outcome == caught:
				n[0], n[1] = n[0]+1, n[1]+1
			case harmless[m.id()] != "":
				n[0], n[2] = n[0]+1, n[2]+1
			default:
				n[0], n[3] = n[0]+1, n[3]+1
				fmt.Fprintf(&left, "\n%s\n\t%s\n\tsurvived: %s\n", m, r.ID, strings.Join(r.Survived, " "))
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", area, len(all[area]), n[0], n[1], n[2], n[3], n[4])
		for i := range n {
			sum[i] += n[i]
		}
	}
	fmt.Fprintf(w, "all\t\t%d\t%d\t%d\t%d\t%d\t\n", sum[0], sum[1], sum[2], sum[3], sum[4])
	w.Flush()
	if real := sum[0] - sum[2]; real > 0 {
		fmt.Fprintf(&out, "\ncaught: %.1f%% of those that are not equivalent\n", 100*float64(sum[1])/float64(real))
	}
	return out.String() + left.String()
}
