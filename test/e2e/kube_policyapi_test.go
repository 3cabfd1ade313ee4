package e2e

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/test/fromsource"
	"github.com/fairlead/fairlead/test/networkpolicyapi"
)

// policyAPIVariable enables the conformance tests of network-policy-api. Its value is a regular expression that selects
// some of them by name, "." for all.
const policyAPIVariable = "FAIRLEAD_POLICY_API"

// noSCTP replaces the servers that would end on a kernel without SCTP, so that their pods become ready. The tests then
// make no connections of SCTP.
const noSCTP = `sed -i 's/SERVE_SCTP_PORT_/SERVE_PORT_/' conformance/base/manifests.yaml
sed -i '/^func doPokeServer/a if protocol == "sctp" { return true }' conformance/utils/kubernetes/helper.go`

// slowSCTP prepares the tests for a slow machine. It removes the servers of TCP and UDP. The servers of SCTP read what
// the client sends before they close the connection: the original ones close at once, and a client that sends later
// reports a broken pipe, although its connection was allowed. There is more time until the pods are ready and until a
// command has started in a pod. How long a connection waits for an answer stays.
const slowSCTP = `awk '
/^        - name: / { port = $0; sub(".*-", "", port); drop = port ~ /^(80|8080|5353|53|tcp|udp)$/ }
/^---/ { drop = 0 }
{ sub("/agnhost porter", "/agnhost netexec --udp-port=-1 --http-port=0 --sctp-port=" port) }
!drop' conformance/base/manifests.yaml > changed.yaml
[ "$(grep -c 'netexec.*--sctp-port=9003' changed.yaml)" = 4 ]
mv changed.yaml conformance/base/manifests.yaml
sed -i 's/NamespacesMustBeReady: 300 /NamespacesMustBeReady: 3600 /; s/PokeTimeout:           10 /PokeTimeout:           600 /' conformance/utils/config/timeout.go
[ "$(grep -cE '(Ready: 3600|Timeout:           600) ' conformance/utils/config/timeout.go)" = 2 ]
sed -i 's/1\*time.Minute/5*time.Minute/' conformance/utils/kubernetes/helper.go
grep -q '5\*time.Minute' conformance/utils/kubernetes/helper.go`

// TestNetworkPolicyAPIConformance runs the conformance tests of network-policy-api with all features, on three nodes.
// Without SCTP in the kernel, it leaves out their connections of SCTP.
func TestNetworkPolicyAPIConformance(t *testing.T) {
	focus := kerneltest.OptIn(t, policyAPIVariable)
	kind := suiteAsItIs
	switch {
	case os.Getenv(kerneltest.WhereVariable) != "": // an emulated machine
		kind = suiteSlowSCTP
	case !kerneltest.Has(t, "SCTP"):
		kind = suiteWithoutSCTP
	}
	suite := policyAPISuite(t, kind)
	p := build(t)
	copyRelease(t, p)
	k := conformanceKinds()[0]
	c := newKubeCluster(t, p, kubernetesPrograms(t, k.version), k)
	c.startDNS(t)
	c.load(t, agnhostImage(t))
	c.mustKubectl(t, "apply", "--server-side", "-f", policyDefinition(t, p))
	c.waitForPolicy(t)
	cmd := exec.Command("nsenter", "--net="+c.wire.netns, "--", suite, "-test.v", "-test.timeout=100m", "-test.run=^TestConformance$/"+focus, "-all-features")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.control.path(kubeConfig))
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, os.Stderr) // they take long, so show their progress
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	results := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^\s+--- (\w+): TestConformance/(\S+)`).FindAllStringSubmatch(out.String(), -1) {
		results[m[1]] = append(results[m[1]], m[2])
	}
	t.Logf("%d tests and subtests passed, %d failed, %d skipped", len(results["PASS"]), len(results["FAIL"]), len(results["SKIP"]))
	if len(results["PASS"]) == 0 || err != nil {
		t.Errorf("%v\nfailed: %s", err, strings.Join(results["FAIL"], "\n"))
	}
}

const policyAPIModule = "sigs.k8s.io/network-policy-api@" + networkpolicyapi.Version

// A suiteKind names a build of the conformance tests of network-policy-api, and has the shell command that changes their
// source first.
type suiteKind struct{ name, prepare string }

var (
	suiteAsItIs      = suiteKind{"network-policy-api-suite", ":"}
	suiteWithoutSCTP = suiteKind{"network-policy-api-suite-without-sctp", noSCTP}
	suiteSlowSCTP    = suiteKind{"network-policy-api-suite-sctp", slowSCTP}
)

// policyAPISuite builds the conformance tests of network-policy-api.
func policyAPISuite(t *testing.T, kind suiteKind) string {
	t.Helper()
	path, err := fromsource.Tests(kind.name+"-"+networkpolicyapi.Version, "suite", policyAPIModule, "./conformance", kind.prepare)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// policyDefinition returns the file with the definition of ClusterNetworkPolicy, as a host of the cluster sees it.
func policyDefinition(t *testing.T, p programs) string {
	t.Helper()
	const name = "clusternetworkpolicies.yaml"
	file, onHost := filepath.Join(p.dir, name), "/mnt/e2e/"+name
	if _, err := os.Stat(file); err == nil {
		return onHost
	}
	if err := copyFile(filepath.Join(moduleDir(t, policyAPIModule), "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"), file); err != nil {
		t.Fatal(err)
	}
	return onHost
}

// moduleDir returns the directory of a module.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`"Dir": "(.*)"`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%s has no directory: %s", module, out)
	}
	return string(m[1])
}
