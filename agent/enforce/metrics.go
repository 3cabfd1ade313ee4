package enforce

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent/policy"
	"github.com/fairlead/fairlead/kernel/nftable"
)

const (
	maxPolicies = 1000        // with counters of their own
	countEvery  = time.Second // the kernel's counters are read at most so often
	maxEvents   = 10000       // whose times are kept until they reach the kernel
)

// metrics counts the work of an Enforcer.
type metrics struct {
	failures, repairs prometheus.Counter
	delay             prometheus.Histogram

	mu      sync.Mutex
	tally   *policy.Tally
	counted time.Time           // when the kernel's counters were read
	kernel  *nftable.Programmer // nil: the Enforcer does not run
}

// begin opens the kernel's counters. What they contain already is of an earlier agent.
func (m *metrics) begin() error {
	p, err := nftable.Open()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kernel = p
	if list, err := p.Counters(policy.TableFamily, policy.TableName, ""); err == nil { // else there is no table yet
		m.tally.Skip(list)
	}
	return nil
}

func (m *metrics) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kernel.Close()
	m.kernel = nil
}

// packets reads the kernel's counters, and calls f with each sum. If the kernel has no table or does not answer, the sums
// stay as they are.
func (m *metrics) packets(f func(policy.Series, uint64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.kernel != nil && now.Sub(m.counted) >= countEvery {
		if list, err := m.kernel.Counters(policy.TableFamily, policy.TableName, ""); err == nil {
			m.tally.Add(list)
		}
		m.counted = now
	}
	for s, n := range m.tally.Sums() {
		f(s, n)
	}
}

// merge adds the sums of a network that has gone, so that no total becomes smaller.
func (m *metrics) merge(gone *metrics) {
	gone.mu.Lock()
	defer gone.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tally.Merge(gone.tally)
}

func newMetrics() *metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "fairlead", Subsystem: "policy", Name: name, Help: help}
	}
	return &metrics{
		tally:    policy.NewTally(maxPolicies),
		failures: prometheus.NewCounter(prometheus.CounterOpts(opts("failures_total", "Failed attempts to write rules to the kernel. The agent tries again."))),
		repairs:  prometheus.NewCounter(prometheus.CounterOpts(opts("repairs_total", "Repairs of the kernel's rules, which other software had changed."))),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "fairlead", Subsystem: "policy", Name: "update_duration_seconds",
			Help:    "Time from an event of the Kubernetes API that changes this node's rules until they are in the kernel.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
	}
}

// forNetwork returns the metrics of an isolated network. Its packets are counted apart.
func (m *metrics) forNetwork() *metrics {
	return &metrics{failures: m.failures, repairs: m.repairs, delay: m.delay, tally: policy.NewTally(maxPolicies)}
}

// desc describes a metric whose value is computed on request.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fairlead_policy_"+name, help, labels, nil)
}

// gauges describe what an Enforcer computes on request, in the order of the values in Collect.
func gauges() []*prometheus.Desc {
	return []*prometheus.Desc{
		desc("in_force", "1 if the kernel has had the rules of all policies once, the last change reached it, and the agent can read and follow all policies."),
		desc("endpoints", "Pods of this node that a policy is about, or whose namespace is not known yet."),
		desc("last_change_timestamp_seconds", "Time of the last change that reached the kernel, or 0."),
		desc("not_enforced_interfaces", "Interfaces of pods of this node that policy does not apply to, because the host does not forward their packets."),
	}
}

func packets() *prometheus.Desc {
	return desc("packets_total", "First packets of connections that a policy accepted, dropped or passed. Without a name: no NetworkPolicy of the namespace allowed them.",
		"kind", "namespace", "name", "direction", "verdict")
}

// Describe implements prometheus.Collector.
func (e *Enforcer) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append(gauges(), packets()) {
		ch <- d
	}
	for _, m := range []prometheus.Collector{e.metrics.failures, e.metrics.repairs, e.metrics.delay} {
		m.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (e *Enforcer) Collect(ch chan<- prometheus.Metric) {
	for i, v := range e.gauges() {
		ch <- prometheus.MustNewConstMetric(gauges()[i], prometheus.GaugeValue, v)
	}
	for _, m := range []prometheus.Collector{e.metrics.failures, e.metrics.repairs, e.metrics.delay} {
		m.Collect(ch)
	}
	for s, n := range e.packets() {
		ch <- prometheus.MustNewConstMetric(packets(), prometheus.CounterValue, float64(n), s.Kind, s.Namespace, s.Name, s.Direction, s.Verdict)
	}
}

// packets returns the sums of all namespaces.
func (e *Enforcer) packets() map[policy.Series]uint64 {
	sums := map[policy.Series]uint64{}
	add := func(s policy.Series, n uint64) { sums[s] += n }
	e.metrics.packets(add)
	for _, n := range e.allNetworks() {
		n.metrics.packets(add)
	}
	return sums
}

func (e *Enforcer) gauges() []float64 {
	out := e.ownGauges()
	for _, n := range e.allNetworks() {
		there := n.ownGauges()
		out = []float64{min(out[0], there[0]), out[1] + there[1], max(out[2], there[2]), out[3]}
	}
	return out
}

func (e *Enforcer) ownGauges() []float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	inForce, changed := 0.0, 0.0
	if (e.inForce || !e.hasNamespace()) && e.failure == nil && e.unreadable == "" && e.unread == "" && len(e.refused) == 0 && len(e.missing) == 0 {
		inForce = 1
	}
	if !e.changed.IsZero() {
		changed = float64(e.changed.UnixMilli()) / 1000
	}
	return []float64{inForce, float64(e.compiler.PolicedEndpoints()), changed, float64(len(e.direct))}
}
