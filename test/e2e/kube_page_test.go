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
)

// kubeText returns the page's section about Kubernetes: which cases passed in which clusters, and what they counted.
func kubeText(rows []kubeRow) string {
	var m matrix
	var clusters, details strings.Builder
	letters := map[string]string{}
	passed := 0
	for _, r := range rows {
		if letters[r.Cluster] == "" {
			letters[r.Cluster] = string(rune('A' + len(letters)))
			fmt.Fprintf(&clusters, "| %s | %s | %s |\n", letters[r.Cluster], r.Cluster, r.Version)
		}
		word, _, _ := strings.Cut(r.Outcome, ": ")
		if word == "passed" {
			passed++
		}
		m.add(r.Case, letters[r.Cluster], "", word)
	}
	for _, name := range m.rows {
		var texts []string
		in := map[string][]string{}
		for _, r := range rows {
			if _, counted, ok := strings.Cut(r.Outcome, ": "); ok && r.Case == name {
				if in[counted] == nil {
					texts = append(texts, counted)
				}
				in[counted] = append(in[counted], letters[r.Cluster])
			}
		}
		for i, counted := range texts {
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&details, "| %s | %s | %s |\n", name, strings.Join(in[counted], ", "), counted)
		}
	}
	return "| cluster | | Kubernetes |\n|---|---|---|\n" + clusters.String() + "\n" + m.text() +
		fmt.Sprintf("\n%d passed, %d failed.\n\n| case | cluster | what the test counted |\n|---|---|---|\n", passed, len(rows)-passed) + details.String()
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

// TestKubernetesPage checks that the page shows the recorded results (UPDATE=1 writes it), and that every case passed in every cluster.
func TestKubernetesPage(t *testing.T) {
	rows := readRows[kubeRow](t, kubeFile)
	if os.Getenv("UPDATE") != "" {
		rewritePage(t, runtimesPage, "kubernetes", kubeText(rows))
	} else {
		t.Parallel()
	}
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
