package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/plugintest"
	"github.com/fairlead/fairlead/internal/reference"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/cyclonus"
	"github.com/fairlead/fairlead/test/vm/job"
)

// guestMargin is the time that the guest has to report hanging tests before its own time limit.
const guestMargin = time.Minute

const module = "github.com/fairlead/fairlead/"

// suite is all or some tests of a package.
type suite struct {
	pkg string
	run string // pattern; "" means all
	on  string // kernel series; "" means every one
}

// suites returns the default tests. A guest takes five to sixteen times as long, so these are only the tests that use
// the kernel directly, the scenarios, and tests of features that this machine's kernel may lack.
func suites() []suite {
	return []suite{
		{pkg: module + "kernel/..."},
		{pkg: module + "plugins/link"},
		{pkg: module + "plugins/chain"},
		{pkg: module + "docker", run: "^TestTypes$", on: "6.12"},
		{pkg: module + "test/scenario", run: "^(TestScenarios|TestPluginPages|TestOVSKernelDatapath)$"},
		// Lists in one process: the scenarios whose features the host may lack.
		{pkg: module + "test/scenario", run: "^TestFusedScenarios$/^(ipvlan|netkit|vrf|vrf-routes|list-openshift-bridge|list-openshift-vrf)$", on: "6.12"},
		{pkg: module + "test/security", run: "^(TestStateModes|TestCapabilities|TestDirectInterfaces)$/^(dummy|ipvlan|vlan|vrf)$", on: "6.12"},
		// The crash sample of features that the host may lack.
		{pkg: module + "test/crash", run: "^(TestTracer|TestSampledPoints)$/^(bridge-netkit|bridge-trunk|bridge-vlan|ptp-netkit|ipvlan|vlan|dummy|vrf|kill|clock)$", on: "6.12"},
		{pkg: module + "test/crash", run: "^TestFixedFailures$/^vrf$", on: "6.12"},
		// Tunnel types that the host may lack, with traffic.
		{pkg: module + "agent/backend", run: "^(TestHosts|TestKeyRotation)$/^(ipip|wireguard|mix)$"},
		{pkg: module + "test/cluster", run: "^TestContainerTunnelPacketsDropped$/^ipip$"},
		// SCTP and IPVS, which the host may lack.
		{pkg: module + "agent/enforce", run: "^(TestSCTPIsNotTCP|TestCutSCTP|TestIPVS)$"},
		{pkg: module + "test/cyclonus", run: "^TestCyclonusSCTP$", on: "6.12"},
		// The test changes the clock, so the machine must not be shared.
		{pkg: module + "test/cluster", run: "^TestClockJumps$", on: "6.12"},
		// Hosts with a slow, lossy link.
		{pkg: module + "test/cluster", run: "^TestSlowLossyLinks$", on: "6.12"},
		// The comparison does not depend on the kernel: one is enough.
		{pkg: module + "test/compat", run: "^(TestCompatibility|TestBoundaries)$/^case$/^features$", on: "6.12"},
	}
}

// suites returns the requested suites.
func (r *runner) suites() (list []suite, _ error) {
	for _, p := range r.packages {
		list = append(list, suite{pkg: p, run: r.pattern})
	}
	switch {
	case list != nil:
		return list, nil
	case !r.lacking:
		return suites(), nil
	}
	records, err := kerneltest.ReadRecords(r.features)
	return skippedOnly(suites(), records), err
}

// skippedOnly returns suites with only the tests that every kernel has skipped so far.
func skippedOnly(list []suite, records []kerneltest.Record) (out []suite) {
	ran, skipped := map[string]bool{}, map[string]kerneltest.Record{}
	for _, r := range records {
		if r.OptIn() {
			continue
		}
		id := r.Package + " " + r.Test
		ran[id] = ran[id] || r.Ran
		skipped[id] = r
	}
	for _, s := range list {
		names := map[string][]string{} // by package
		for _, id := range slices.Sorted(maps.Keys(skipped)) {
			if r := skipped[id]; !ran[id] && s.matches(r.Package, r.Test) {
				names[r.Package] = append(names[r.Package], exactPattern(r.Test))
			}
		}
		for _, pkg := range slices.Sorted(maps.Keys(names)) {
			out = append(out, suite{pkg: pkg, run: strings.Join(names[pkg], "|"), on: s.on})
		}
	}
	return out
}

// matches reports whether go test would run a test of a package for the suite.
func (s suite) matches(pkg, test string) bool {
	if below, ok := strings.CutSuffix(s.pkg, "/..."); pkg != s.pkg && (!ok || !strings.HasPrefix(pkg+"/", below+"/")) {
		return false
	}
	names := strings.Split(test, "/")
	for i, pattern := range strings.Split(s.run, "/") {
		if i < len(names) && !regexp.MustCompile(pattern).MatchString(names[i]) {
			return false
		}
	}
	return true
}

// exactPattern returns the pattern that matches one test.
func exactPattern(test string) string {
	var out []string
	for name := range strings.SplitSeq(test, "/") {
		out = append(out, "^"+regexp.QuoteMeta(name)+"$")
	}
	return strings.Join(out, "/")
}

// testBinaries are the programs that a guest needs.
type testBinaries struct {
	guest string
	tests []test
}

// test is a job's test, optionally for one kernel only.
type test struct {
	job.Test
	on string
}

// on returns the tests that run on a kernel series.
func (b testBinaries) on(series string) (out []job.Test) {
	for _, t := range b.tests {
		if t.on == "" || t.on == series {
			out = append(out, t.Test)
		}
	}
	return out
}

func build(ctx context.Context, work string, r *runner) (testBinaries, error) {
	b := testBinaries{guest: filepath.Join(work, "guest")}
	if err := compile(ctx, "build", "-o", b.guest, module+"test/vm/guest"); err != nil {
		return b, err
	}
	if r.command != "" {
		dir, err := os.Getwd()
		b.tests = []test{{Test: job.Test{Package: "command", Dir: dir, Argv: strings.Fields(r.command)}}}
		return b, err
	}
	list, err := r.suites()
	if err != nil {
		return b, err
	}
	for _, s := range list {
		packages, err := packagesOf(ctx, s.pkg)
		if err != nil {
			return b, err
		}
		for _, p := range packages {
			t := job.Test{Package: p.pkg, Dir: p.dir, Argv: []string{filepath.Join(work, strings.ReplaceAll(p.pkg, "/", "_")+".test"),
				"-test.timeout=" + (r.limit - guestMargin).String(), "-test.run=" + s.run, "-test.parallel=8"}}
			if r.lacking {
				t.Argv = append(t.Argv, "-test.short")
			}
			if r.verbose {
				t.Argv = append(t.Argv, "-test.v")
			}
			b.tests = append(b.tests, test{t, s.on})
		}
	}
	return b, b.compile(ctx, work)
}

type packageDir struct{ pkg, dir string }

// packagesOf returns the packages of a pattern that have tests.
func packagesOf(ctx context.Context, pattern string) (out []packageDir, err error) {
	text, err := exec.CommandContext(ctx, "go", "list", "-f", `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`, pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	for line := range strings.Lines(string(text)) {
		if pkg, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			out = append(out, packageDir{pkg, dir})
		}
	}
	return out, nil
}

// compile builds the test binaries, and the programs that tests would otherwise build.
func (b *testBinaries) compile(ctx context.Context, work string) error {
	done := map[string]bool{}
	for i := range b.tests {
		t := &b.tests[i]
		if !done[t.Package] {
			if err := compile(ctx, "test", "-c", "-o", t.Argv[0], t.Package); err != nil {
				return err
			}
		}
		done[t.Package] = true
	}
	for pkg, provide := range map[string]func(context.Context, string) ([]string, error){
		module + "test/compat": referencePlugins, module + "test/cluster": programs, module + "test/docker": programs,
		module + "test/cyclonus": cyclonusCases, module + "test/e2e": clusterPrograms,
		module + "test/scenario": testProgram, module + "test/crash": testProgram, module + "test/security": testProgram,
	} {
		if !done[pkg] {
			continue
		}
		env, err := provide(ctx, work)
		if err != nil {
			return err
		}
		for i := range b.tests {
			if b.tests[i].Package == pkg {
				b.tests[i].Env = env
			}
		}
	}
	return nil
}

// programs builds Fairlead's two programs.
func programs(ctx context.Context, work string) ([]string, error) {
	dir := filepath.Join(work, "bin")
	return []string{"FAIRLEAD_TEST_PROGRAMS=" + dir}, compile(ctx, "build", "-o", dir+"/", module+"cmd/fairlead", module+"cmd/fairlead-cni")
}

// testProgram builds the program that tests run as every plugin.
func testProgram(ctx context.Context, work string) ([]string, error) {
	path := filepath.Join(work, "test-program")
	return []string{plugintest.Variable + "=" + path}, compile(ctx, "build", "-o", path, plugintest.Package)
}

// clusterPrograms builds what a Kubernetes cluster needs.
func clusterPrograms(ctx context.Context, work string) ([]string, error) {
	dir := filepath.Join(work, "bin")
	env := []string{"FAIRLEAD_TEST_PROGRAMS=" + dir}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=60m", "-run=^TestBuildPrograms$", module+"test/e2e")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("build the programs of a cluster: %w\n%s", err, out)
	}
	return env, nil
}

// referencePlugins builds our plugins and the reference plugins, which test/compat compares.
func referencePlugins(ctx context.Context, work string) ([]string, error) {
	dir := filepath.Join(work, "cni")
	if err := errors.Join(reference.InstallAll(), os.Mkdir(dir, 0o755)); err != nil {
		return nil, err
	}
	program := filepath.Join(dir, "fairlead-cni")
	if err := compile(ctx, "build", "-o", program, module+"cmd/fairlead-cni"); err != nil {
		return nil, err
	}
	names, err := exec.CommandContext(ctx, program, "--list").Output()
	for name := range strings.FieldsSeq(string(names)) {
		err = errors.Join(err, os.Symlink("fairlead-cni", filepath.Join(dir, name)))
	}
	return []string{"FAIRLEAD_TEST_PLUGINS=" + dir}, err
}

// cyclonusCases builds Cyclonus, and asks for every 40th case unless the caller asks for others.
func cyclonusCases(context.Context, string) ([]string, error) {
	_, err := cyclonus.Build()
	return []string{cyclonus.Variable + "=" + cmp.Or(os.Getenv(cyclonus.Variable), "40")}, err
}

// compile runs the go command without cgo, because the guest has no C library. It uses both processors.
func compile(ctx context.Context, verb string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{verb, "-ldflags=-s -w"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s %s: %w\n%s", verb, strings.Join(args, " "), err, out)
	}
	return nil
}
