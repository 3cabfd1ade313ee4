package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// kubeText returns the page's section about Kubernetes.
func kubeText(rows []kubeRow) string {
	var b strings.Builder
	b.WriteString("| client | version | case | result | time |\n|---|---|---|---|---|\n")
	passed := 0
	for _, r := range rows {
		elapsed := "-"
		if strings.HasPrefix(r.Outcome, "passed") {
			passed++
			elapsed = r.Took.Round(100 * time.Millisecond).String()
		}
		fmt.Fprintf(&b, "| Kubernetes, %s | %s | %s | %s | %s |\n", r.Cluster, r.Version, r.Case, r.Outcome, elapsed)
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed.\n", passed, len(rows)-passed)
	return b.String()
}

// readRows returns the results recorded in a file, none if it does not exist.
func readRows[R any](t *testing.T, file string) (rows []R) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &rows)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return rows
}

// recordRows replaces the recorded results of the same things, and returns all in order.
func recordRows[R any](t *testing.T, file string, rows []R, same func(a, b R) bool, order func(a, b R) int) []R {
	t.Helper()
	all := slices.DeleteFunc(readRows[R](t, file), func(old R) bool {
		return slices.ContainsFunc(rows, func(r R) bool { return same(r, old) })
	})
	all = append(all, rows...)
	slices.SortStableFunc(all, order)
	raw, err := json.MarshalIndent(all, "", " ")
	if err == nil {
		err = os.WriteFile(file, append(raw, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestKubernetesPage checks that the page shows the recorded results, and that every case passed in every cluster.
func TestKubernetesPage(t *testing.T) {
	t.Parallel()
	rows := readRows[kubeRow](t, kubeFile)
	if _, text, _ := pageParts(t, runtimesPage, "kubernetes"); text != kubeText(rows) {
		t.Errorf("the page has\n%s\nthe results are\n%s", text, kubeText(rows))
	}
	for _, k := range clusterKinds() {
		for _, one := range append(kubeCases(), kubeCase{name: startCase}) {
			i := slices.IndexFunc(rows, func(r kubeRow) bool { return r.Cluster == k.String() && r.Case == one.name })
			if k.runs(one) && (i < 0 || !strings.HasPrefix(rows[i].Outcome, "passed")) {
				t.Errorf("%s, %s: was not run, or failed (make e2e-kubernetes writes the page)", k, one.name)
			}
		}
	}
}
