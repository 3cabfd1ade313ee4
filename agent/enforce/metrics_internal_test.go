package enforce

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/kerneltest/router"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// measured is an Enforcer without an API, and the node that it programs.
type measured struct {
	t    *testing.T
	e    *Enforcer
	host *router.Router
}

func newMeasured(t *testing.T, host *router.Router) *measured {
	m := &measured{t, newEnforcer(Options{Node: "n1", Log: slog.New(slog.DiscardHandler)}, nil), host}
	m.e.activate()
	m.e.synced(attachmentFiles)
	must(t, m.e.metrics.begin())
	t.Cleanup(m.e.metrics.end)
	m.e.update(func(c *policy.Compiler) {
		c.SetNamespace("shop", nil)
		c.SetEndpoint(&policy.Endpoint{Namespace: "shop", Name: "db", Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
		c.SetEndpoint(&policy.Endpoint{Namespace: "shop", Name: "far", Node: "n2", Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.1")}})
	})
	m.allow(80)
	return m
}

// allow lets connections to a port into the pods of the namespace, and no others.
func (m *measured) allow(port int32) {
	m.t.Helper()
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = "shop", "db"
	number := intstr.FromInt32(port)
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &number}}}}
	m.e.update(func(c *policy.Compiler) { c.SetNetworkPolicy(p) })
	m.write()
}

func (m *measured) write() {
	m.t.Helper()
	must(m.t, m.e.write(m.t.Context(), m.host.Table))
}

// send sends packets to the pod db.
func (m *measured) send(count int, port uint16) {
	list := make([]router.Packet, count)
	for i := range list {
		list[i] = router.Packet{Src: netip.MustParseAddr("10.0.0.9"), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: "TCP", Port: port}
	}
	m.host.Send(list)
}

// has compares metrics with their values. A metric without a value in the text is 0 or does not exist.
func (m *measured) has(want map[string]float64) {
	m.t.Helper()
	m.e.metrics.counted = time.Time{} // the tests scrape often
	reg := prometheus.NewRegistry()
	reg.MustRegister(m.e)
	families, err := reg.Gather()
	must(m.t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "fairlead_policy_")
			for _, l := range x.GetLabel() {
				if l.GetValue() != "" {
					name += " " + l.GetValue()
				}
			}
			got[name] = x.GetGauge().GetValue() + x.GetCounter().GetValue() + float64(x.GetHistogram().GetSampleCount())
		}
	}
	for name, v := range want {
		if got[name] != v {
			m.t.Errorf("%s is %v, want %v; all: %v", name, got[name], v, got)
		}
	}
}

const (
	accepted = "packets_total ingress NetworkPolicy db shop accepted" // labels in alphabetical order
	dropped  = "packets_total ingress NetworkPolicy shop dropped"
)

// TestMetrics counts packets in the kernel while policies change, other software flushes a chain, and a write fails.
func TestMetrics(t *testing.T) {
	t.Parallel()
	host := router.New(t)
	m := newMeasured(t, host)
	m.has(map[string]float64{"in_force": 1, "endpoints": 1, accepted: 0, dropped: 0, "update_duration_seconds": 0, "failures_total": 0, "repairs_total": 0})
	if since := time.Since(m.e.changed); since < 0 || since > kerneltest.Slow(time.Minute) {
		t.Errorf("the last change was %v ago", since)
	}
	m.send(3, 80)
	m.send(40, 81)
	m.has(map[string]float64{accepted: 3, dropped: 40})

	m.allow(81) // the chain is filled again, and its counters begin at 0
	m.has(map[string]float64{accepted: 3, dropped: 40, "update_duration_seconds": 1})
	m.send(2, 81)
	m.send(1, 80)
	m.has(map[string]float64{accepted: 5, dropped: 41})

	before := m.e.changed
	m.e.update(func(c *policy.Compiler) { c.DeleteEndpoint("shop", "far") }) // no rule is about it
	m.write()
	if m.has(map[string]float64{"update_duration_seconds": 1}); m.e.changed != before {
		t.Error("the time of the last change is that of an event that changed nothing")
	}

	kerneltest.Run(t, "nft", "flush", "table", "inet", "fairlead-policy")
	m.e.disturbed.Store(true)
	m.write()
	m.send(1, 81)
	m.has(map[string]float64{accepted: 6, dropped: 41, "repairs_total": 1})

	failing, stop := context.WithCancel(t.Context())
	stop()
	m.e.update(func(c *policy.Compiler) { c.DeletePolicy(policy.NetworkPolicyID("shop", "db")) })
	if m.e.write(failing, host.Table) == nil {
		t.Error("a write without a context succeeded")
	}
	m.has(map[string]float64{"in_force": 0, "failures_total": 1, "update_duration_seconds": 1, accepted: 6})
	m.write()
	m.has(map[string]float64{"in_force": 1, "update_duration_seconds": 2, "repairs_total": 1, "endpoints": 0, accepted: 0})
}

// TestMetricsBegin starts an agent when the kernel has counted for an earlier one.
func TestMetricsBegin(t *testing.T) {
	t.Parallel()
	host := router.New(t)
	m := newMeasured(t, host)
	m.send(3, 80)
	p, err := nftable.Open()
	must(t, err)
	defer p.Close()
	host.Table = p // of the next agent, which does not know what the kernel has
	next := newMeasured(t, host)
	next.has(map[string]float64{accepted: 0, dropped: 0})
	next.send(2, 80)
	next.has(map[string]float64{accepted: 2})
	m.has(map[string]float64{accepted: 5})
}

// TestProblem says why policy is not in force: before the API's objects and before the kernel's rules are complete, and
// after a failure.
func TestProblem(t *testing.T) {
	t.Parallel()
	e := New(Options{Config: &rest.Config{}, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	is := func(want string) {
		t.Helper()
		if got := e.Problem(); got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("problem %q, want %q", got, want)
		}
	}
	is("the agent has not received since it started: clusternetworkpolicies of the Kubernetes API, networkpolicies of")
	for _, k := range kinds() {
		e.synced(k.resource + fromAPI) // of types that nobody needs without policies, too
	}
	is("the rules are not in the kernel yet")
	host := router.New(t)
	must(t, e.write(t.Context(), host.Table))
	is("")
	failing, stop := context.WithCancel(t.Context())
	stop()
	e.update(func(c *policy.Compiler) { c.SetNamespace("x", nil) })
	e.disturbed.Store(true)
	if e.write(failing, host.Table) == nil {
		t.Fatal("a write without a context succeeded")
	}
	is("the kernel did not accept the rules: ")
	must(t, e.write(t.Context(), host.Table))
	is("")
	if got := New(Options{}).Problem(); !strings.HasSuffix(got, "since it started: attachments of this node, policy files") {
		t.Errorf("with a directory: %q", got)
	}
}
