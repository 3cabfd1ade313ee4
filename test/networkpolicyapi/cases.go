// Package networkpolicyapi has the expectations of the conformance tests of network-policy-api, which defines
// ClusterNetworkPolicy.
//
// The tests run in a program that replaces the cluster by objects in memory and records each connection attempt. So
// their expectations are data for other tests.
package networkpolicyapi

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/test/fromsource"
)

// Version is the version of network-policy-api.
const Version = "v0.2.0"

// Case is a subtest. Its steps run one after the other in one cluster.
type Case struct {
	Name  string // TEST/SUBTEST
	Steps []Step
}

// Step is one expected connection attempt, and the state of the cluster at that moment. Pods with the network of their
// node are not in the world; the node's address is. No endpoint is on such a pod's node.
type Step struct {
	World    *policy.World
	From, To string // NAMESPACE/POD
	Packet   policy.Packet
	Allowed  bool
}

//go:embed testdata/dump.go
var dump string

//go:embed testdata/poke.go
var poke string

// Cases returns all cases, with pods that have IPv4 or IPv6 addresses (family 4 or 6). The first call builds the tests
// from source, with the Go module proxy.
func Cases(family int) ([]Case, error) {
	dir := fmt.Sprintf("network-policy-api-%s-%.6x", Version, sha256.Sum256([]byte(dump+poke)))
	prepare := "mkdir conformance/dump && cat > conformance/dump/main.go <<'END_OF_FILE'\n" + dump + "END_OF_FILE\n" +
		"sed -i 's/^func PokeServer(/func pokeOverNetwork(/' conformance/utils/kubernetes/helper.go\n" +
		"cat > conformance/utils/kubernetes/poke.go <<'END_OF_FILE'\n" + poke + "END_OF_FILE\n"
	program, err := fromsource.Program(dir, "dump", "sigs.k8s.io/network-policy-api@"+Version, "./conformance/dump", prepare)
	if err != nil {
		return nil, err
	}
	var cases []Case
	err = fromsource.Decode(&cases, program, strconv.Itoa(family))
	return cases, err
}
