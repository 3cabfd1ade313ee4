// Package cyclonus has the test cases of Cyclonus, a generator of tests for NetworkPolicy, and its expectations.
//
// Cyclonus' matcher differs from the documentation of Kubernetes in two points:
//
//   - It applies policy to packets from a pod to itself. The page "Network Policies" says that a pod cannot block
//     access to itself. Of 13,713 such cells, Cyclonus denies 1,554 with IPv4. Its own runner can ignore them.
//   - In its selectors, NotIn does not match an object without the label (pkg/kube/labelselector.go). The page "Labels
//     and Selectors" says that notin selects these objects as well. No case shows the difference: the only NotIn is
//     about a label that all namespaces have.
package cyclonus

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/test/fromsource"
)

// Version is the version of Cyclonus.
const Version = "v0.5.6"

// Variable is the environment variable that enables the tests: see eachFamily.
const Variable = "FAIRLEAD_CYCLONUS"

// Case is a test case. Its steps run one after the other in one cluster.
type Case struct {
	Name  string
	Tags  []string
	Steps []Step
}

// Step is the state of the cluster after some changes, and the expected connectivity between its pods.
type Step struct {
	World *policy.World
	Cells []Cell
}

// Cell is the expectation of Cyclonus' matcher for a packet from a pod to a port of a pod.
type Cell struct {
	From, To        string // NAMESPACE/POD
	Packet          policy.Packet
	Egress, Ingress bool
}

// Allowed is the expectation by the documentation of Kubernetes: both directions allow the packet, or a pod sends it to
// itself.
func (c Cell) Allowed() bool { return c.From == c.To || c.Egress && c.Ingress }

//go:embed testdata/dump.go
var dump string

// Build returns the path of a program that prints the cases. The first call builds it from source, with the Go module
// proxy.
func Build() (string, error) {
	dir := fmt.Sprintf("cyclonus-%s-%.6x", Version, sha256.Sum256([]byte(dump)))
	prepare := "mkdir cmd/dump && cat > cmd/dump/main.go <<'END_OF_DUMP'\n" + dump + "END_OF_DUMP\n"
	return fromsource.Program(dir, "dump", "github.com/mattfenwick/cyclonus@"+Version, "./cmd/dump", prepare)
}

// Cases returns every case, or with a step N every Nth one, with pods that have IPv4 or IPv6 addresses (family 4 or 6).
// It builds Cyclonus if necessary.
func Cases(family, step int) ([]Case, error) {
	program, err := Build()
	if err != nil {
		return nil, err
	}
	var cases []Case
	err = fromsource.Decode(&cases, program, strconv.Itoa(family), strconv.Itoa(step))
	return cases, err
}
