// Command dump runs the conformance tests of network-policy-api without a cluster, and prints the connections that they
// expect as JSON. It is built inside a copy of the module. Its argument is the family of the pods' addresses: 4 or 6.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	api "sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/kubernetes"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

type testCase struct {
	Name  string
	Steps []step
}

type step struct {
	World    world
	From, To string
	Packet   packet
	Allowed  bool
}

type world struct {
	Namespaces      map[string]map[string]string
	Endpoints       []endpoint
	Nodes           []node
	Policies        []networkingv1.NetworkPolicy
	ClusterPolicies []api.ClusterNetworkPolicy
}

type endpoint struct {
	Namespace, Name, Node string
	Labels                map[string]string
	Addresses             []string
	Ports                 []port
}

type port struct {
	Name, Protocol string
	Number         int32
}

type node struct {
	Name      string
	Labels    map[string]string
	Addresses []string
}

type packet struct {
	Src, Dst, Protocol string
	Port               int32
}

func main() {
	// The program exits when the tests have run, so a test prints the cases. A reader ignores the text behind them.
	family := os.Args[1]
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "dump", F: func(t *testing.T) { dump(t, family) }}}, nil, nil)
}

func dump(t *testing.T, family string) {
	s := newSuite()
	must(t, createPods(t, s, family))
	var cases []testCase
	kubernetes.Poke = func(t *testing.T, namespace, pod, protocol, host string, number int32, connects bool) {
		name := strings.TrimPrefix(t.Name(), "dump/")
		if len(cases) == 0 || cases[len(cases)-1].Name != name {
			cases = append(cases, testCase{Name: name})
		}
		w, addresses, err := snapshot(s.Client)
		must(t, err)
		from := namespace + "/" + pod
		p := packet{Src: addresses[from], Dst: host, Protocol: strings.ToUpper(protocol), Port: number}
		steps := &cases[len(cases)-1].Steps
		*steps = append(*steps, step{World: w, From: from, To: addresses[host], Packet: p, Allowed: connects})
	}
	s.Run(t, tests.ConformanceTests)
	must(t, json.NewEncoder(os.Stdout).Encode(cases))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSuite() *suite.ConformanceTestSuite {
	schemes := scheme.Scheme
	if err := api.Install(schemes); err != nil {
		panic(err)
	}
	s := suite.New(suite.Options{Client: fake.NewClientBuilder().WithScheme(schemes).Build(), EnableAllSupportedFeatures: true})
	for port := 34345; port < 34345+8; port++ {
		s.HostNetworkPorts = append(s.HostNetworkPorts, port)
	}
	s.Applier.FS, s.Applier.HostNetworkPorts = s.FS, s.HostNetworkPorts
	return s
}

// createPods creates the pods of the StatefulSets, and a node for each of their numbers. Pods with the network of their
// node have a node of their own, because the tests expect that policy applies to packets to them.
func createPods(t *testing.T, s *suite.ConformanceTestSuite, family string) error {
	s.Applier.MustApplyWithCleanup(t, s.Client, s.TimeoutConfig, s.BaseManifests, false)
	ctx := context.Background()
	var namespaces corev1.NamespaceList
	if err := s.Client.List(ctx, &namespaces); err != nil {
		return err
	}
	for _, n := range namespaces.Items {
		n.Labels["kubernetes.io/metadata.name"] = n.Name
		if err := s.Client.Update(ctx, &n); err != nil {
			return err
		}
	}
	podFormat, nodeFormat := "10.0.%d.%d", "172.16.0.%d"
	if family == "6" {
		podFormat, nodeFormat = "fd00:0:0:%x::%x", "fd01::%x"
	}
	for i := range 4 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", i), Labels: map[string]string{"kubernetes.io/os": "linux"}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf(nodeFormat, i+1)}}
		if err := s.Client.Create(ctx, n); err != nil {
			return err
		}
	}
	var sets appsv1.StatefulSetList
	if err := s.Client.List(ctx, &sets); err != nil {
		return err
	}
	for i, set := range sets.Items {
		for j := range int(*set.Spec.Replicas) {
			p := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
			p.Name, p.Namespace, p.Spec.NodeName = fmt.Sprintf("%s-%d", set.Name, j), set.Namespace, fmt.Sprint("node", j)
			p.Status.PodIP = fmt.Sprintf(podFormat, i+1, j+1)
			if p.Spec.HostNetwork {
				p.Spec.NodeName, p.Status.PodIP = fmt.Sprint("node", j+2), fmt.Sprintf(nodeFormat, j+3)
			}
			if err := s.Client.Create(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshot returns the objects of the cluster, and the address of each pod and the reverse.
func snapshot(c client.Client) (world, map[string]string, error) {
	ctx := context.Background()
	var namespaces corev1.NamespaceList
	var pods corev1.PodList
	var nodes corev1.NodeList
	var policies networkingv1.NetworkPolicyList
	var clusterPolicies api.ClusterNetworkPolicyList
	for _, l := range []client.ObjectList{&namespaces, &pods, &nodes, &policies, &clusterPolicies} {
		if err := c.List(ctx, l); err != nil {
			return world{}, nil, err
		}
	}
	w := world{Namespaces: map[string]map[string]string{}, Policies: policies.Items, ClusterPolicies: clusterPolicies.Items}
	for _, n := range namespaces.Items {
		w.Namespaces[n.Name] = n.Labels
	}
	for _, n := range nodes.Items {
		w.Nodes = append(w.Nodes, node{n.Name, n.Labels, []string{n.Status.Addresses[0].Address}})
	}
	addresses := map[string]string{}
	for _, p := range pods.Items {
		name := p.Namespace + "/" + p.Name
		addresses[name], addresses[p.Status.PodIP] = p.Status.PodIP, name
		if p.Spec.HostNetwork {
			continue
		}
		e := endpoint{p.Namespace, p.Name, p.Spec.NodeName, p.Labels, []string{p.Status.PodIP}, nil}
		for _, container := range p.Spec.Containers {
			for _, cp := range container.Ports {
				e.Ports = append(e.Ports, port{cp.Name, string(cp.Protocol), cp.ContainerPort})
			}
		}
		w.Endpoints = append(w.Endpoints, e)
	}
	return w, addresses, nil
}
