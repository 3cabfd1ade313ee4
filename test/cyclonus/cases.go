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
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/test/fromsource"
)

// Version is the version of Cyclonus.
const Version = "v0.5.6"

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

// Cases returns all cases, with pods that have IPv4 or IPv6 addresses (family 4 or 6). The first call builds Cyclonus
// from source, with the Go module proxy.
func Cases(family int) ([]Case, error) {
	dir := fmt.Sprintf("cyclonus-%s-%.6x", Version, sha256.Sum256([]byte(dump)))
	prepare := "mkdir cmd/dump && cat > cmd/dump/main.go <<'END_OF_DUMP'\n" + dump + "END_OF_DUMP\n"
	program, err := fromsource.Program(dir, "dump", "github.com/mattfenwick/cyclonus@"+Version, "./cmd/dump", prepare)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(program, strconv.Itoa(family)).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %d: %w", program, family, err)
	}
	var cases []printedCase
	if err := json.Unmarshal(out, &cases); err != nil {
		return nil, fmt.Errorf("%s %d: %w", program, family, err)
	}
	return convert(cases)
}

// printedCase is a case as the program dump prints it.
type printedCase struct {
	Description string
	Tags        []string
	Steps       []printedStep
}

type printedStep struct {
	Namespaces map[string]map[string]string
	Pods       []printedPod
	Policies   []*networkingv1.NetworkPolicy
	Cells      []struct {
		From, To        string
		Protocol        string
		Port            uint16
		Egress, Ingress bool
	}
}

type printedPod struct {
	Namespace, Name string
	Labels          map[string]string
	IP              netip.Addr
	Containers      []struct {
		PortName, Protocol string
		Port               uint16
	}
}

func convert(cases []printedCase) ([]Case, error) {
	var out []Case
	for _, c := range cases {
		converted := Case{Name: c.Description, Tags: c.Tags}
		for _, s := range c.Steps {
			step, err := s.step()
			if err != nil {
				return nil, fmt.Errorf("case %q: %w", c.Description, err)
			}
			converted.Steps = append(converted.Steps, step)
		}
		out = append(out, converted)
	}
	return out, nil
}

// step puts all pods on one node, whose addresses are in no policy.
func (s printedStep) step() (Step, error) {
	const node = "node"
	w := &policy.World{Namespaces: s.Namespaces, Policies: s.Policies, Nodes: []*policy.Node{{
		Name: node, Addresses: []netip.Addr{netip.MustParseAddr("172.16.0.1"), netip.MustParseAddr("fd01::1")}}}}
	addresses := map[string]netip.Addr{}
	for _, p := range s.Pods {
		e := &policy.Endpoint{Namespace: p.Namespace, Name: p.Name, Node: node, Labels: p.Labels, Addresses: []netip.Addr{p.IP}}
		for _, c := range p.Containers {
			e.Ports = append(e.Ports, policy.NamedPort{Name: c.PortName, Protocol: c.Protocol, Number: c.Port})
		}
		w.Endpoints = append(w.Endpoints, e)
		addresses[p.Namespace+"/"+p.Name] = p.IP
	}
	step := Step{World: w}
	for _, c := range s.Cells {
		src, dst := addresses[c.From], addresses[c.To]
		if !src.IsValid() || !dst.IsValid() {
			return Step{}, fmt.Errorf("a cell from %s to %s, and no such pods", c.From, c.To)
		}
		packet := policy.Packet{Src: src, Dst: dst, Protocol: c.Protocol, Port: c.Port}
		step.Cells = append(step.Cells, Cell{c.From, c.To, packet, c.Egress, c.Ingress})
	}
	return step, nil
}
