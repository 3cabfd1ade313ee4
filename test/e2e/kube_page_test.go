package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// kubeText is the part of the page about Kubernetes.
func kubeText(rows []kubeRow) string {
	var b strings.Builder
	b.WriteString("| client | version | case | result | time |\n|---|---|---|---|---|\n")
	passed := 0
	for _, r := range rows {
		took := "-"
		if strings.HasPrefix(r.Said, "passed") {
			passed++
			took = r.Took.Round(100 * time.Millisecond).String()
		}
		fmt.Fprintf(&b, "| Kubernetes, %s | %s | %s | %s | %s |\n", r.Cluster, r.Version, r.Case, r.Said, took)
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed.\n", passed, len(rows)-passed)
	return b.String()
}

// The page says what the last runs saw, of every cluster and each of its cases; all of
// them have passed.
func TestKubernetesPage(t *testing.T) {
	t.Parallel()
	rows := readKubeRows(t)
	if _, text, _ := pageParts(t, "kubernetes"); text != kubeText(rows) {
		t.Errorf("the page has\n%s\nthe runs saw\n%s", text, kubeText(rows))
	}
	for _, k := range clusterKinds() {
		for _, one := range append(kubeCases(), kubeCase{name: upCase}) {
			i := slices.IndexFunc(rows, func(r kubeRow) bool { return r.Cluster == k.String() && r.Case == one.name })
			if k.has(one) && (i < 0 || !strings.HasPrefix(rows[i].Said, "passed")) {
				t.Errorf("%s, %s: was not run, or failed (make e2e-kubernetes writes the page)", k, one.name)
			}
		}
	}
}
