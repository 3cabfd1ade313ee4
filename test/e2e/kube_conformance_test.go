package e2e

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/internal/kubetest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// conformanceVariable enables Kubernetes' own tests. Its value is a regular expression that selects specs,
// "conformance" for those of [sig-network] with [Conformance], "policy" for those of NetworkPolicies without SCTP,
// "SCTP" for all that need it, or "network" for the others of [sig-network] that this cluster can run.
// conformanceClusterVariable selects clusters, as kubernetesVariable does.
//
// suiteLogsVariable names a directory for the output of Kubernetes' test program, without the other logs of logsVariable.
const (
	conformanceVariable        = "FAIRLEAD_CONFORMANCE"
	conformanceClusterVariable = "FAIRLEAD_CONFORMANCE_CLUSTER"
	suiteLogsVariable          = "FAIRLEAD_SUITE_LOGS"
)

const (
	conformanceSpecs = `\[sig-network\].*\[Conformance\]`
	networkSpecs     = `\[sig-network\]`
	policySpecs      = `\[sig-network\] Netpol`
	withoutSCTP      = `\[Feature:SCTPConnectivity\]`
	sctpSpecs        = networkSpecs + `.*` + withoutSCTP // their kernel needs module sctp

	// unsuitable are the specs that need a cloud or the Internet (one looks up the name of a public address), network
	// policies, SCTP in the kernel, kubelet's limits of local storage, which these nodes do not have, or hours.
	unsuitable = `\[Conformance\]|\[Disruptive\]|\[Flaky\]|LoadBalancer|GCE|Cloud|evicted pods|PTR lookup|` +
		`\[Feature:(NetworkPolicy|SCTPConnectivity|Networking-Performance|Networking-IPv4|Networking-IPv6|Networking-DNS|KubeProxyNFAcct|PerformanceDNS)\]`
	needsDualStack = `|\[Feature:IPv6DualStack\]`
	localNodePorts = `|\[Feature:LocalhostNodePorts\]` // kube-proxy has them on 127.0.0.1 with iptables only, and not on ::1
)

// specProcesses is the number of processes that run specs at the same time. The specs give a connection one second, so an
// emulated machine runs one spec at a time.
func specProcesses() int {
	if os.Getenv(kerneltest.WhereVariable) != "" {
		return 1
	}
	return 6
}

// conformanceKinds are the clusters in which Kubernetes' own tests run.
func conformanceKinds() (kinds []clusterKind) {
	for _, f := range []family{ipv4, ipv6, dualStack} {
		for _, mode := range []string{"nftables", "iptables"} {
			kinds = append(kinds, clusterKind{version: kubetest.Version, nodes: 3, mode: mode, network: kubernetesAgent, family: f})
		}
	}
	return kinds
}

// conformanceRow is the result of one run of the suite.
type conformanceRow struct {
	Cluster, Version, Specs string

	Passed, Skipped int
	Failed          []string
	Reasons         []string // of skipped specs, each after its spec's name
	Took            time.Duration

	output string // of failed specs
}

// TestConformance runs the tests that Kubernetes has for networks, as they are.
func TestConformance(t *testing.T) {
	focus := kerneltest.OptIn(t, conformanceVariable)
	name, skip := focus, ""
	switch focus {
	case "conformance":
		focus = conformanceSpecs
	case "network":
		focus, skip = networkSpecs, unsuitable
	case "policy":
		focus, skip = policySpecs, withoutSCTP
	case "SCTP":
		kerneltest.Needs(t, "SCTP")
		focus = sctpSpecs
	}
	p, suite := build(t), kubernetesSuite(t)
	copyRelease(t, p)
	var rows []conformanceRow
	for _, k := range conformanceKinds() {
		skip := skip
		if chosen := os.Getenv(conformanceClusterVariable); chosen != "" && chosen != k.String() && chosen != "all" {
			continue
		}
		t.Run(k.String(), func(t *testing.T) {
			c := newKubeCluster(t, p, kubernetesPrograms(t, k.version), k)
			c.startDNS(t)
			if focus == sctpSpecs { // a virtual machine takes minutes for each image
				c.load(t, agnhostImage(t))
			} else {
				for _, i := range suiteImageList(t) {
					c.load(t, i)
				}
			}
			if skip != "" && k.family != dualStack {
				skip += needsDualStack
			}
			if skip != "" && (k.mode != "iptables" || k.family == ipv6) {
				skip += localNodePorts
			}
			for _, n := range c.hosts { // some specs need a zone for each node
				c.mustKubectl(t, "label", "node", n.name, "topology.kubernetes.io/zone=zone-"+n.name)
			}
			c.waitForPolicy(t)
			row := c.runSuite(t, suite, focus, skip)
			row.Specs = name
			for _, f := range row.Failed {
				t.Error("failed:", f)
			}
			if row.output != "" {
				t.Log(row.output)
			}
			t.Logf("%s: %d passed, %d failed, %d skipped in %v", k, row.Passed, len(row.Failed), row.Skipped, row.Took.Round(time.Second))
			rows = append(rows, row)
		})
	}
	if os.Getenv("UPDATE") != "" {
		same := func(a, b conformanceRow) bool { return a.Cluster == b.Cluster && a.Specs == b.Specs }
		all := recordRows(t, conformanceFile, rows, same, func(a, b conformanceRow) int { return strings.Compare(a.Specs+a.Cluster, b.Specs+b.Cluster) })
		rewritePage(t, conformancePage, "conformance", conformanceText(all))
	}
}

// kubernetesSuite builds Kubernetes' test program.
func kubernetesSuite(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../internal/kubetest/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	path, err := built.Program("kubernetes-"+kubetest.Version, "e2e.test", func(temp string) *exec.Cmd {
		cmd := exec.Command("go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", temp+"/e2e.test", "k8s.io/kubernetes/test/e2e")
		cmd.Dir = dir
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod")
		return cmd
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// runSuite runs the selected specs. Several processes run those that do not need the cluster for themselves.
func (c *cluster) runSuite(t *testing.T, suite, focus, skip string) conformanceRow {
	t.Helper()
	row := conformanceRow{Cluster: c.String(), Version: c.version}
	specs := selectSpecs(t, suite, focus, skip)
	serial := slices.DeleteFunc(slices.Clone(specs), func(s string) bool { return !strings.Contains(s, "[Serial]") })
	specs = slices.DeleteFunc(specs, func(s string) bool { return strings.Contains(s, "[Serial]") })
	start := time.Now()
	var mu sync.Mutex
	var wait sync.WaitGroup
	one := func(list []string, i int) {
		out, err := c.runSpecs(suite, list, i)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Errorf("process %d of the suite: %v", i, err)
		}
		row.Passed += out.Passed
		row.Skipped += out.Skipped
		row.Failed = append(row.Failed, out.Failed...)
		row.Reasons = append(row.Reasons, out.Reasons...)
		row.output += out.output
	}
	processes := specProcesses()
	for i := range processes {
		var list []string
		for j := i; j < len(specs); j += processes {
			list = append(list, specs[j])
		}
		if len(list) > 0 {
			wait.Go(func() { one(list, i) })
		}
	}
	wait.Wait()
	if len(serial) > 0 {
		one(serial, processes)
	}
	row.Took = time.Since(start)
	slices.Sort(row.Failed)
	slices.Sort(row.Reasons)
	return row
}

// junit is the part of a JUnit report that we use.
type junit struct {
	Suites []struct {
		Cases []junitCase `xml:"testcase"`
	} `xml:"testsuite"`
}

type junitCase struct {
	Name    string `xml:"name,attr"`
	Status  string `xml:"status,attr"`
	Failure *struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	} `xml:"failure"`
	Skipped *struct {
		Message string `xml:"message,attr"`
	} `xml:"skipped"`
	Output string `xml:"system-err"`
}

func readReport(dir string) (list []junitCase, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, "junit_01.xml"))
	var doc junit
	if err == nil {
		err = xml.Unmarshal(raw, &doc)
	}
	for _, s := range doc.Suites {
		list = append(list, s.Cases...)
	}
	return list, err
}

// selectSpecs returns the names of the specs that match.
func selectSpecs(t *testing.T, suite, focus, skip string) (names []string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(suite, "-ginkgo.dry-run", "-ginkgo.focus", focus, "-ginkgo.skip", skip, "-report-dir", dir)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("list the specs: %v: %s", err, out[max(0, len(out)-2000):])
	}
	list, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		if x.Skipped == nil && strings.HasPrefix(x.Name, "[It] ") {
			names = append(names, strings.TrimPrefix(x.Name, "[It] "))
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		t.Fatalf("no spec matches %q", focus)
	}
	return names
}

// runSpecs runs specs one after the other, outside of the cluster's nodes.
func (c *cluster) runSpecs(suite string, specs []string, i int) (row conformanceRow, err error) {
	dir := filepath.Join(c.dir, fmt.Sprintf("suite-%d", i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return row, err
	}
	var focus []string
	for _, s := range specs {
		focus = append(focus, regexp.QuoteMeta(s))
	}
	raw, err := os.ReadFile(c.control.path(kubeConfig))
	if err == nil {
		err = os.WriteFile(dir+"/config", raw, 0o600)
	}
	if err != nil {
		return row, err
	}
	cmd := exec.Command("nsenter", "--net="+c.wire.netns, "--", suite, "-kubeconfig="+dir+"/config", "-kubectl-path="+c.bin+"/kubectl",
		"-ginkgo.focus=("+strings.Join(focus, "|")+")$", "-ginkgo.no-color", "-ginkgo.timeout=3h", "-report-dir="+dir, "-num-nodes="+fmt.Sprint(c.nodes), "-dns-domain=cluster.local")
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(dir + "/log")
	if err != nil {
		return row, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	failed := cmd.Run()
	if keep := cmp.Or(os.Getenv(suiteLogsVariable), os.Getenv(logsVariable)); keep != "" {
		_ = copyFile(dir+"/log", filepath.Join(keep, fmt.Sprintf("suite-%d.log", i)))
	}
	list, err := readReport(dir)
	if err != nil {
		return row, errors.Join(failed, err)
	}
	ran := 0
	for _, x := range list {
		name, spec := strings.CutPrefix(x.Name, "[It] ")
		switch {
		case x.Failure != nil || x.Status == "failed" || x.Status == "timedout" || x.Status == "panicked" || x.Status == "interrupted":
			message := x.Status
			if x.Failure != nil {
				message = x.Failure.Message + " " + x.Failure.Text
			}
			message = strings.Join(strings.Fields(message), " ")
			row.Failed = append(row.Failed, name+": "+message[:min(len(message), 300)])
			row.output += name + ":\n" + x.Output[:min(len(x.Output), 20000)] + "\n"
			ran++
		case spec && x.Status == "passed":
			row.Passed++
			ran++
		case spec && x.Skipped != nil && x.Skipped.Message != "skipped" && x.Skipped.Message != "":
			row.Skipped++
			row.Reasons = append(row.Reasons, name+": "+strings.TrimPrefix(x.Skipped.Message, "skipped - "))
			ran++
		}
	}
	if ran < len(specs) {
		return row, errors.Join(fmt.Errorf("%d of %d specs ran", ran, len(specs)), failed)
	}
	return row, nil
}

const conformanceFile = "testdata/kubernetes/conformance.json"

// conformanceText returns the section about the results.
func conformanceText(rows []conformanceRow) string {
	var b strings.Builder
	b.WriteString("| specs | cluster | passed | failed | skipped | time |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | Kubernetes %s, %s | %d | %d | %d | %v |\n", r.Specs, r.Version, r.Cluster, r.Passed, len(r.Failed), r.Skipped, r.Took.Round(time.Second))
	}
	for _, r := range rows {
		for _, f := range r.Failed {
			fmt.Fprintf(&b, "\nFailed, %s: %s\n", r.Cluster, f)
		}
	}
	var reasons []string
	for _, r := range rows {
		reasons = append(reasons, r.Reasons...)
	}
	slices.Sort(reasons)
	if len(reasons) > 0 {
		b.WriteString("\nSpecs that skip themselves, with their reasons:\n\n")
	}
	for _, why := range slices.Compact(reasons) {
		fmt.Fprintf(&b, "- %s\n", why)
	}
	return b.String()
}

// TestConformancePage checks that the page shows the recorded results, and that no conformance spec failed in any
// cluster.
func TestConformancePage(t *testing.T) {
	t.Parallel()
	rows := readRows[conformanceRow](t, conformanceFile)
	if _, text, _ := pageParts(t, conformancePage, "conformance"); text != conformanceText(rows) {
		t.Errorf("the page has\n%s\nthe results are\n%s", text, conformanceText(rows))
	}
	for _, k := range conformanceKinds() {
		i := slices.IndexFunc(rows, func(r conformanceRow) bool { return r.Cluster == k.String() && r.Specs == "conformance" })
		if i < 0 || rows[i].Passed < 47 || len(rows[i].Failed) != 0 {
			t.Errorf("%s: a conformance spec failed or was not run (make conformance writes the page)", k)
		}
	}
}
