package e2e

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// kubernetesVariable enables the Kubernetes tests. Its value is the name of one cluster, a part of several names, or
// "all".
const kubernetesVariable = "FAIRLEAD_E2E_KUBERNETES"

// clusterKinds returns the clusters that the cases run in.
func clusterKinds() (kinds []clusterKind) {
	for _, nodes := range []int{1, 3} {
		for _, mode := range []string{"iptables", "nftables"} {
			kinds = append(kinds, clusterKind{nodes: nodes, mode: mode})
		}
	}
	return append(kinds, clusterKind{3, "nftables", true})
}

type clusterKind struct {
	nodes int
	mode  string
	agent bool // our agent connects the nodes with tunnels, instead of static routes
}

func (k clusterKind) String() string {
	name := map[int]string{1: "one node", 3: "three nodes"}[k.nodes] + ", " + k.mode
	if k.agent {
		name += ", the agent"
	}
	return name
}

// runs reports whether the cluster runs a case.
func (k clusterKind) runs(one kubeCase) bool {
	return one.nodes <= k.nodes && !(one.noAgent && k.agent) && !(one.agentOnly && !k.agent)
}

// chosenKinds returns all clusters, the one with the given name, or those whose names contain it.
func chosenKinds(selector string) (kinds []clusterKind) {
	for _, k := range clusterKinds() {
		if k.String() == selector {
			return []clusterKind{k}
		}
		if selector == "all" || strings.Contains(k.String(), selector) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func TestChosenKinds(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string]int{"all": 5, "three nodes, nftables": 1, "three nodes, nftables, the agent": 1, "nftables": 3, "one node": 2, "the agent": 1, "ipvs": 0} {
		if got := chosenKinds(selector); len(got) != want {
			t.Errorf("%q chooses %v, want %d", selector, got, want)
		}
	}
}

// TestKubernetes runs every case in every chosen cluster, one after the other.
func TestKubernetes(t *testing.T) {
	selector := kerneltest.OptIn(t, kubernetesVariable) // it builds Kubernetes
	bin, p := kubernetesPrograms(t), build(t)
	copyRelease(t, p)
	var rows []kubeRow
	for _, k := range chosenKinds(selector) {
		t.Run(k.String(), func(t *testing.T) { rows = append(rows, kubeRun(t, p, bin, k)...) })
	}
	if os.Getenv("UPDATE") != "" {
		rewritePage(t, "kubernetes", kubeText(writeKubeRows(t, rows)))
	}
}

// kubeRow is the result of a case.
type kubeRow struct {
	Cluster, Version, Case string

	Outcome string // "passed", possibly with a summary, or "failed"
	Took    time.Duration
}

func kubeRun(t *testing.T, p programs, bin string, k clusterKind) (rows []kubeRow) {
	start := time.Now()
	c := newKubeCluster(t, p, bin, k)
	rows = append(rows, kubeRow{k.String(), kubernetesVersion, startCase, "passed", time.Since(start)})
	for _, one := range kubeCases() {
		if !k.runs(one) {
			continue
		}
		row := kubeRow{Cluster: k.String(), Version: kubernetesVersion, Case: one.name, Outcome: "failed"}
		start, summary := time.Now(), ""
		if t.Run(one.name, func(t *testing.T) {
			t.Cleanup(func() { c.checkUnchanged(t) }) // runs after the case's own cleanup
			summary = one.run(t, c)
		}) {
			row.Outcome = strings.TrimSuffix("passed: "+summary, ": ")
		}
		row.Took = time.Since(start)
		rows = append(rows, row)
	}
	return rows
}

// startCase is the cluster's start, until all nodes are ready and each has run and removed a pod.
const startCase = "cluster up"

const kubeFile = "testdata/kubernetes/cases.json"

// writeKubeRows replaces the recorded results of the same clusters.
func writeKubeRows(t *testing.T, rows []kubeRow) (all []kubeRow) {
	t.Helper()
	for _, old := range readKubeRows(t) {
		if !slices.ContainsFunc(rows, func(r kubeRow) bool { return r.Cluster == old.Cluster }) {
			all = append(all, old)
		}
	}
	all = append(all, rows...)
	slices.SortStableFunc(all, func(a, b kubeRow) int { return strings.Compare(a.Cluster, b.Cluster) })
	raw, err := json.MarshalIndent(all, "", " ")
	if err == nil {
		err = os.WriteFile(kubeFile, append(raw, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func readKubeRows(t *testing.T) (rows []kubeRow) {
	t.Helper()
	raw, err := os.ReadFile(kubeFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
