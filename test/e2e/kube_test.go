package e2e

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// kubernetesVariable enables the Kubernetes tests. Its value is the name of one cluster, a part of several names, or
// "all".
const kubernetesVariable = "FAIRLEAD_E2E_KUBERNETES"

// repeatVariable sets the number of runs of each case, to find rare failures.
const repeatVariable = "FAIRLEAD_E2E_REPEAT"

// clusterKinds returns the clusters that the cases run in.
func clusterKinds() (kinds []clusterKind) {
	for _, nodes := range []int{1, 3} {
		for _, mode := range []string{"iptables", "nftables"} {
			kinds = append(kinds, clusterKind{version: oldestKubernetes, nodes: nodes, mode: mode})
		}
	}
	return append(kinds, clusterKind{version: oldestKubernetes, nodes: 3, mode: "nftables", network: etcdAgent},
		clusterKind{version: oldestKubernetes, nodes: 3, mode: "nftables", network: kubernetesAgent},
		clusterKind{version: kubetest.Version, nodes: 3, mode: "iptables", network: kubernetesAgent},
		clusterKind{version: kubetest.Version, nodes: 3, mode: "nftables", network: kubernetesAgent},
		clusterKind{version: kubetest.Version, nodes: 3, mode: "nftables", network: kubernetesAgent, family: dualStack, blocks: true})
}

// clusterKind is a kind of cluster. mode is the mode of kube-proxy. With blocks, Kubernetes assigns no ranges to nodes:
// Fairlead assigns blocks to them, and single addresses to pods that ask for them.
type clusterKind struct {
	version string
	nodes   int
	mode    string
	network podNetwork
	family  family
	blocks  bool
}

// family says which addresses nodes, pods and services have.
type family int

const (
	ipv4 family = iota
	ipv6
	dualStack // IPv4 first
)

// pick joins the values of the families.
func (f family) pick(v4, v6 string) string {
	return [...]string{v4, v6, v4 + "," + v6}[f]
}

// podNetwork says what connects the pods of different nodes.
type podNetwork int

const (
	staticRoutes    podNetwork = iota // which the test adds
	etcdAgent                         // our agent with etcd as its store, and tunnels
	kubernetesAgent                   // our agent with the Kubernetes API as its store, as the manifest has it
)

func (k clusterKind) String() string {
	name := map[int]string{1: "one node", 3: "three nodes"}[k.nodes] + ", " + k.mode
	if k.network == kubernetesAgent && k.version == oldestKubernetes {
		name += ", oldest version"
	}
	name += [...]string{"", ", the agent", ", Kubernetes store"}[k.network] + [...]string{"", ", IPv6", ", dual stack"}[k.family]
	if k.blocks {
		name += ", blocks"
	}
	return name
}

// runs reports whether the cluster runs a case.
func (k clusterKind) runs(one kubeCase) bool {
	if k.blocks && one.blocks == notInBlocks || !k.blocks && one.blocks == onlyInBlocks {
		return false
	}
	return one.nodes <= k.nodes && !(one.noAgent && k.network != staticRoutes) && !(one.agentOnly && k.network == staticRoutes) && !(one.inAPI && k.network != kubernetesAgent)
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
	for selector, want := range map[string]int{"all": 9, "three nodes, nftables": 1, "three nodes, nftables, the agent": 1, "nftables": 6, "one node": 2, "the agent": 1, "Kubernetes store": 4, "blocks": 1, "ipvs": 0} {
		if got := chosenKinds(selector); len(got) != want {
			t.Errorf("%q chooses %v, want %d", selector, got, want)
		}
	}
}

// TestKubernetes runs every case in every chosen cluster, one after the other.
func TestKubernetes(t *testing.T) {
	selector := kerneltest.OptIn(t, kubernetesVariable) // it builds Kubernetes
	p := build(t)
	copyRelease(t, p)
	var rows []kubeRow
	for _, k := range chosenKinds(selector) {
		t.Run(k.String(), func(t *testing.T) { rows = append(rows, kubeRun(t, p, kubernetesPrograms(t, k.version), k)...) })
	}
	if os.Getenv("UPDATE") != "" {
		rewritePage(t, runtimesPage, "kubernetes", kubeText(recordKubeRows(t, rows)))
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
	rows = append(rows, kubeRow{k.String(), k.version, startCase, "passed", time.Since(start)})
	cases := kubeCases()
	if text := os.Getenv(repeatVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s=%s: %v", repeatVariable, text, err)
		}
		cases = slices.Repeat(cases, n)
	}
	for _, one := range cases {
		if !k.runs(one) {
			continue
		}
		row := kubeRow{Cluster: k.String(), Version: k.version, Case: one.name, Outcome: "failed"}
		start, summary, ran := time.Now(), "", false
		if t.Run(one.name, func(t *testing.T) {
			ran = true
			t.Cleanup(func() { c.checkUnchanged(t) }) // runs after the case's own cleanup
			summary = one.run(t, c)
		}) {
			row.Outcome = strings.TrimSuffix("passed: "+summary, ": ")
		}
		if row.Took = time.Since(start); ran {
			rows = append(rows, row)
		}
	}
	return rows
}

// startCase is the cluster's start, until all nodes are ready and each has run and removed a pod.
const startCase = "cluster up"

const kubeFile = "testdata/kubernetes/cases.json"

// recordKubeRows replaces the recorded results of the same cases in the same clusters, and returns all.
func recordKubeRows(t *testing.T, rows []kubeRow) []kubeRow {
	t.Helper()
	order := append([]kubeCase{{name: startCase}}, kubeCases()...)
	at := func(r kubeRow) int {
		return slices.IndexFunc(order, func(one kubeCase) bool { return one.name == r.Case })
	}
	same := func(a, b kubeRow) bool { return a.Cluster == b.Cluster && a.Case == b.Case }
	return recordRows(t, kubeFile, rows, same, func(a, b kubeRow) int { return cmp.Or(strings.Compare(a.Cluster, b.Cluster), at(a)-at(b)) })
}
