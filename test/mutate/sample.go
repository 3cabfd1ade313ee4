package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// areas are the parts of the tree that are mutated, each with its packages.
var areas = []string{"kernel", "plugin", "plugins", "ipam", "attach", "libcni", "podnet", "agent"}

// sample returns the mutants of each area in an order that only the seed decides.
func sample(root string, seed uint64) (map[string][]*mutant, error) {
	out := map[string][]*mutant{}
	for _, area := range areas {
		files, err := goFiles(root, "./"+area+"/...")
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			found, err := mutantsOf(root, file)
			if err != nil {
				return nil, err
			}
			out[area] = append(out[area], found...)
		}
		slices.SortFunc(out[area], func(a, b *mutant) int { return cmp.Compare(rank(seed, a), rank(seed, b)) })
	}
	return out, nil
}

// rank is a mutant's place in the sample. It does not depend on other mutants, so a change of the code elsewhere does not
// change the sample.
func rank(seed uint64, m *mutant) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", seed, m.id())
	return h.Sum64()
}

// goFiles returns the files of packages, without tests and without the packages that only tests use.
func goFiles(root, pattern string) (files []string, err error) {
	cmd := exec.Command("go", "list", "-f", `{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}`, pattern)
	cmd.Dir = root
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w", pattern, err)
	}
	for _, path := range strings.Fields(string(raw)) {
		file, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		if dir := filepath.Base(filepath.Dir(file)); !strings.HasSuffix(dir, "test") {
			files = append(files, file)
		}
	}
	return files, nil
}

// shares divides n mutants among the areas, in proportion to how many each has, and at least five to each.
func shares(all map[string][]*mutant, n int) map[string]int {
	const least = 5
	total := 0
	for _, list := range all {
		total += len(list)
	}
	out := map[string]int{}
	left := n - least*len(areas)
	for _, area := range areas {
		out[area] = least + (left*len(all[area])+total-1)/max(total, 1) // rounded up
	}
	return out
}
