// Command dump prints the test cases of Cyclonus with its own expectations, as JSON. It is built inside a copy of
// Cyclonus' module. Its arguments are the family of the pods' addresses, 4 or 6, and N for
// every Nth case.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"

	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

type testCase struct {
	Name  string
	Tags  []string
	Steps []step
}

type step struct {
	World world
	Cells []cell
}

type world struct {
	Namespaces map[string]map[string]string
	Endpoints  []endpoint
	Nodes      []node
	Policies   []*networkingv1.NetworkPolicy
}

type endpoint struct {
	Namespace, Name, Node string
	Labels                map[string]string
	Addresses             []string
	Ports                 []port
}

type port struct {
	Name     string
	Protocol v1.Protocol
	Number   int
}

type node struct {
	Name      string
	Addresses []string
}

type cell struct {
	From, To        string
	Packet          packet
	Egress, Ingress bool
}

type packet struct {
	Src, Dst string
	Protocol v1.Protocol
	Port     int
}

// state is the cluster in which the steps of a case run.
type state struct {
	resources *probe.Resources
	policies  []*networkingv1.NetworkPolicy
	addresses []string // the next pods'
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(family, every string) error {
	n, err := strconv.Atoi(every)
	if err != nil {
		return err
	}
	s := cluster(family)
	zc, err := s.resources.GetPod("z", "c")
	if err != nil {
		return err
	}
	var out []testCase
	for i, c := range generator.NewTestCaseGenerator(true, zc.IP, []string{"x", "y", "z"}, nil, nil).GenerateTestCases() {
		if i%n != 0 {
			continue
		}
		steps, err := cluster(family).steps(c)
		if err != nil {
			return fmt.Errorf("case %q: %w", c.Description, err)
		}
		out = append(out, testCase{c.Description, c.Tags.Keys(), steps})
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// cluster returns three namespaces with three pods each. Cyclonus derives the blocks in its policies from the address
// of z/c: the larger block contains the pods of y and z, the smaller one z/b and z/c.
func cluster(family string) *state {
	format := "10.0.%d.%d"
	if family == "6" {
		format = "fd00:0:0:1::%x%02x"
	}
	address := func(a, b int) string { return fmt.Sprintf(format, a, b) }
	s := &state{resources: &probe.Resources{Namespaces: map[string]map[string]string{}}}
	last := map[string][]string{
		"x": {address(1, 1), address(1, 2), address(1, 3)},
		"y": {address(2, 1), address(2, 2), address(2, 3)},
		"z": {address(2, 17), address(2, 33), address(2, 34)},
	}
	for _, ns := range []string{"x", "y", "z"} {
		s.resources.Namespaces[ns] = map[string]string{"ns": ns, "kubernetes.io/metadata.name": ns}
		for i, name := range []string{"a", "b", "c"} {
			pod := probe.NewDefaultPod(ns, name, []int{80, 81}, []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP}, false, "")
			pod.IP = last[ns][i]
			s.resources.Pods = append(s.resources.Pods, pod)
		}
	}
	for i := range 8 {
		s.addresses = append(s.addresses, address(3, i+1))
	}
	return s
}

func (s *state) steps(c *generator.TestCase) ([]step, error) {
	var out []step
	for _, t := range c.Steps {
		for _, a := range t.Actions {
			if err := s.act(a); err != nil {
				return nil, err
			}
		}
		cells, err := s.cells(t.Probe)
		if err != nil {
			return nil, err
		}
		out = append(out, step{s.world(), cells})
	}
	return out, nil
}

// world puts all pods on one node, whose addresses are in no policy.
func (s *state) world() world {
	const name = "node"
	w := world{Namespaces: s.resources.Namespaces, Policies: slices.Clone(s.policies)}
	w.Nodes = []node{{name, []string{"172.16.0.1", "fd01::1"}}}
	for _, p := range s.resources.Pods {
		e := endpoint{p.Namespace, p.Name, name, p.Labels, []string{p.IP}, nil}
		for _, c := range p.Containers {
			e.Ports = append(e.Ports, port{c.PortName, c.Protocol, c.Port})
		}
		w.Endpoints = append(w.Endpoints, e)
	}
	return w
}

func (s *state) act(a *generator.Action) (err error) {
	switch {
	case a.CreatePolicy != nil:
		s.policies = append(s.policies, a.CreatePolicy.Policy)
	case a.UpdatePolicy != nil:
		err = s.remove(a.UpdatePolicy.Policy.Namespace, a.UpdatePolicy.Policy.Name)
		s.policies = append(s.policies, a.UpdatePolicy.Policy)
	case a.DeletePolicy != nil:
		err = s.remove(a.DeletePolicy.Namespace, a.DeletePolicy.Name)
	case a.CreateNamespace != nil:
		s.resources, err = s.resources.CreateNamespace(a.CreateNamespace.Namespace, a.CreateNamespace.Labels)
	case a.SetNamespaceLabels != nil:
		s.resources, err = s.resources.UpdateNamespaceLabels(a.SetNamespaceLabels.Namespace, a.SetNamespaceLabels.Labels)
	case a.DeleteNamespace != nil:
		s.resources, err = s.resources.DeleteNamespace(a.DeleteNamespace.Namespace)
	case a.CreatePod != nil:
		if s.resources, err = s.resources.CreatePod(a.CreatePod.Namespace, a.CreatePod.Pod, a.CreatePod.Labels); err == nil {
			s.resources.Pods[len(s.resources.Pods)-1].IP, s.addresses = s.addresses[0], s.addresses[1:]
		}
	case a.SetPodLabels != nil:
		s.resources, err = s.resources.SetPodLabels(a.SetPodLabels.Namespace, a.SetPodLabels.Pod, a.SetPodLabels.Labels)
	case a.DeletePod != nil:
		s.resources, err = s.resources.DeletePod(a.DeletePod.Namespace, a.DeletePod.Pod)
	default:
		err = fmt.Errorf("unknown action %+v", *a)
	}
	return err
}

func (s *state) remove(namespace, name string) error {
	i := slices.IndexFunc(s.policies, func(p *networkingv1.NetworkPolicy) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return fmt.Errorf("no policy %s/%s", namespace, name)
	}
	s.policies = slices.Delete(slices.Clone(s.policies), i, i+1)
	return nil
}

// cells asks Cyclonus' matcher about each pair of pods.
func (s *state) cells(c *generator.ProbeConfig) ([]cell, error) {
	config := *c
	config.Mode = generator.ProbeModePodIP
	jobs := &probe.JobBuilder{}
	if j := jobs.GetJobsForProbeConfig(s.resources, &config); len(j.BadNamedPort)+len(j.BadPortProtocol) > 0 {
		return nil, fmt.Errorf("the pods have no port for the probe %+v", config.PortProtocol)
	}
	table := probe.NewSimulatedRunner(matcher.BuildNetworkPolicies(true, s.policies), jobs).RunProbeForConfig(&config, s.resources)
	var out []cell
	for _, pair := range table.Wrapped.Keys() {
		results := table.Get(pair.From, pair.To).JobResults
		var keys []string
		for k := range results {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			r := results[k]
			p := packet{r.Job.FromIP, r.Job.ToIP, r.Job.Protocol, r.Job.ResolvedPort}
			out = append(out, cell{pair.From, pair.To, p, *r.Egress == probe.ConnectivityAllowed, *r.Ingress == probe.ConnectivityAllowed})
		}
	}
	return out, nil
}
