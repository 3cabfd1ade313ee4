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
)

// kubernetesVariable asks for clusters; its value is the name of one, a part of the
// names of some, or "all".
const kubernetesVariable = "FAIRLEAD_E2E_KUBERNETES"

// clusterKinds are the clusters that the cases run in.
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
	agent bool // nodes are joined by our agent, with tunnels, in place of routes by hand
}

func (k clusterKind) String() string {
	name := map[int]string{1: "one node", 3: "three nodes"}[k.nodes] + ", " + k.mode
	if k.agent {
		name += ", the agent"
	}
	return name
}

// has tells whether a case is one for the cluster.
func (k clusterKind) has(one kubeCase) bool {
	return one.nodes <= k.nodes && !(one.noAgent && k.agent) && !(one.agentOnly && !k.agent)
}

// chosenKinds are all clusters, the one of that name, or those whose names have it.
func chosenKinds(asked string) (kinds []clusterKind) {
	for _, k := range clusterKinds() {
		if k.String() == asked {
			return []clusterKind{k}
		}
		if asked == "all" || strings.Contains(k.String(), asked) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func TestChosenKinds(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]int{"all": 5, "three nodes, nftables": 1, "three nodes, nftables, the agent": 1, "nftables": 3, "one node": 2, "the agent": 1, "ipvs": 0} {
		if got := chosenKinds(asked); len(got) != want {
			t.Errorf("%q chooses %v, want %d", asked, got, want)
		}
	}
}

// TestKubernetes takes clusters through every case, one after the other.
func TestKubernetes(t *testing.T) {
	asked := os.Getenv(kubernetesVariable)
	if asked == "" {
		return // make e2e-kubernetes: it builds Kubernetes
	}
	bin, p := kubernetesPrograms(t), build(t)
	layOut(t, p)
	var rows []kubeRow
	for _, k := range chosenKinds(asked) {
		t.Run(k.String(), func(t *testing.T) { rows = append(rows, kubeRun(t, p, bin, k)...) })
	}
	if os.Getenv("UPDATE") != "" {
		rewritePage(t, "kubernetes", kubeText(writeKubeRows(t, rows)))
	}
}

// kubeRow is what a case came to.
type kubeRow struct {
	Cluster, Version, Case string

	Said string // "passed", with what was seen, or "failed"
	Took time.Duration
}

func kubeRun(t *testing.T, p programs, bin string, k clusterKind) (rows []kubeRow) {
	start := time.Now()
	c := newCluster(t, p, bin, k)
	rows = append(rows, kubeRow{k.String(), kubernetesVersion, upCase, "passed", time.Since(start)})
	for _, one := range kubeCases() {
		if !k.has(one) {
			continue
		}
		row := kubeRow{Cluster: k.String(), Version: kubernetesVersion, Case: one.name, Said: "failed"}
		start, said := time.Now(), ""
		if t.Run(one.name, func(t *testing.T) {
			t.Cleanup(func() { c.asBefore(t) }) // when what the case brought up is down
			said = one.run(t, c)
		}) {
			row.Said = strings.TrimSuffix("passed: "+said, ": ")
		}
		row.Took = time.Since(start)
		rows = append(rows, row)
	}
	return rows
}

// upCase is the cluster's start: until all nodes are ready and pods have come and
// gone.
const upCase = "cluster up"

const kubeFile = "testdata/kubernetes/cases.json"

// writeKubeRows replaces what the file has of the same clusters.
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
