package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// town is a large cluster: 100 pods in each namespace, of ten applications, and 100 pods on each node. A policy lets the
// pods of one application into another one, by its labels and those of a namespace.
type town struct {
	*rand.Rand
	pods, policies int
}

const (
	podsPerNamespace = 100
	podsPerNode      = 100
	applications     = 10
)

func (c town) namespaces() int { return max(c.pods/podsPerNamespace, 1) }

func (c town) pod(i int) *policy.Endpoint {
	return &policy.Endpoint{
		Namespace: fmt.Sprint("ns-", i%c.namespaces()), Name: fmt.Sprint("pod-", i), Node: fmt.Sprint("node-", i/podsPerNode),
		Labels:    map[string]string{"app": fmt.Sprint("app-", i/c.namespaces()%applications), "pod-template-hash": fmt.Sprint(i / 3)},
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})},
	}
}

func (c town) policy(i int) *networkingv1.NetworkPolicy {
	app := func() *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", c.IntN(applications))}}
	}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = fmt.Sprint("ns-", i%c.namespaces()), fmt.Sprint("policy-", i)
	p.Spec.PodSelector = *app()
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{PodSelector: app(), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"number": strconv.Itoa(c.IntN(c.namespaces()))}}}, {PodSelector: app()},
	}}}
	return p
}

// fill tells a compiler about the town.
func (c town) fill(to *policy.Compiler) {
	for i := range c.namespaces() {
		to.SetNamespace(fmt.Sprint("ns-", i), map[string]string{"number": strconv.Itoa(i)})
	}
	for i := range c.pods {
		to.SetEndpoint(c.pod(i))
	}
	for i := range c.policies {
		to.SetNetworkPolicy(c.policy(i))
	}
}

// TestScale measures a node of large clusters: the first table, and then random changes until they are in the kernel.
func TestScale(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_POLICY_SCALE")
	for _, size := range [][2]int{{1, 10000}, {100, 10000}, {1000, 10000}, {10000, 10000}, {30000, 30000}, {75000, 100000}} {
		t.Run(fmt.Sprintf("%d policies, %d pods", size[0], size[1]), func(t *testing.T) {
			kerneltest.Host(t)
			c := town{rand.New(rand.NewPCG(1, 2)), size[1], size[0]}
			before := heap()
			to := policy.New("node-0")
			began := time.Now()
			c.fill(to)
			table, _ := to.Table()
			compiled := time.Since(began)
			memory := heap() - before
			p, err := nftable.Open()
			must(t, err)
			defer p.Close()
			began = time.Now()
			_, err = p.Sync(t.Context(), table)
			must(t, err)
			t.Logf("compiled in %v, %.0f MB; %d sets, %d chains; written in %v", compiled.Round(time.Millisecond), memory, len(table.Sets), len(table.Chains), time.Since(began).Round(time.Millisecond))
			c.change(t, to, p, "a pod elsewhere joins or leaves", func(i int) {
				if e := c.pod(1 + c.IntN(c.pods-1)); i%2 == 0 {
					to.DeleteEndpoint(e.Namespace, e.Name)
				} else {
					to.SetEndpoint(e)
				}
			})
			c.change(t, to, p, "a neighbour of this node's pods joins or leaves", func(i int) {
				e := c.pod(podsPerNode + c.IntN(podsPerNode)*c.namespaces()%(c.pods-podsPerNode))
				if i%2 == 0 {
					to.DeleteEndpoint(e.Namespace, e.Name)
				} else {
					to.SetEndpoint(e)
				}
			})
			c.change(t, to, p, "a pod of this node joins or leaves", func(i int) {
				e := c.pod(0)
				if i%2 == 0 {
					to.DeleteEndpoint(e.Namespace, e.Name)
				} else {
					to.SetEndpoint(e)
				}
			})
			c.change(t, to, p, "a policy changes", func(int) { to.SetNetworkPolicy(c.policy(c.IntN(c.policies))) })
			c.change(t, to, p, "a policy for this node changes", func(int) { to.SetNetworkPolicy(c.policy(min(c.policies, podsPerNode) * c.IntN(100) / 100)) })
		})
	}
}

// change measures changes, from the event to the end of the kernel's transaction.
func (c town) change(t *testing.T, to *policy.Compiler, p *nftable.Programmer, name string, f func(i int)) {
	t.Helper()
	const count = 500
	var times []time.Duration
	for i := range count {
		began := time.Now()
		f(i)
		table, changes := to.Table()
		found, err := p.Apply(t.Context(), table, changes)
		must(t, err)
		if len(found) > 0 {
			t.Fatal(strings.Join(found, "\n"))
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	at := func(percent int) time.Duration { return times[(count-1)*percent/100].Round(time.Microsecond) }
	t.Logf("%s: p50 %v, p90 %v, p99 %v", name, at(50), at(90), at(99))
}

// heap returns the size of the live heap in MB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
