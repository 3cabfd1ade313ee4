package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serve serves /metrics, /healthz and /readyz until the context ends. /healthz checks that the loop runs. /readyz
// checks that containers can reach other nodes; it answers 503 with every reason if not.
func (a *Agent) serve(ctx context.Context, address string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{a})
	if a.policy != nil {
		reg.MustRegister(a.policy)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeHealth(w, a.alive()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { writeHealth(w, a.status.NotReady()) })
	s := &http.Server{Handler: mux, ReadTimeout: readTimeout, IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 64 << 10}
	context.AfterFunc(ctx, func() { s.Close() })
	go func() {
		if err := s.Serve(&limitedListener{Listener: l, open: map[bool]int{}}); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the metrics server failed", "error", err)
		}
	}()
	return nil
}

// readTimeout limits the time for a whole request. A client that announces a body and does not send it would otherwise keep
// its connection.
const readTimeout = 5 * time.Second

func writeHealth(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// loopTimeout is the time after which the loop counts as stuck.
const loopTimeout = 2 * resyncEvery

// alive returns an error if the loop is stuck.
func (a *Agent) alive() error {
	if since := a.status.sinceLastLoop(); since > loopTimeout {
		return fmt.Errorf("the reconcile loop has been stuck for %s", since.Round(time.Second))
	}
	return nil
}

// collector collects the agent's metrics on request.
type collector struct{ a *Agent }

type metric struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*State) float64
}

func metrics() []metric {
	const g, c = prometheus.GaugeValue, prometheus.CounterValue
	yes := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	return []metric{
		{"ready", "1 if containers on this node can reach those on other nodes.", g, func(s *State) float64 { return yes(s.Ready) }},
		{"store_reachable", "1 if the store answers.", g, func(s *State) float64 { return yes(s.StoreError == "") }},
		{"nodes", "Nodes in the cluster.", g, func(s *State) float64 { return float64(s.Nodes) }},
		{"unreachable_nodes", "Nodes that this node cannot reach.", g, func(s *State) float64 { return float64(len(s.Unreachable)) }},
		{"invalid_keys", "Invalid keys in the store, which the agent ignores.", g, func(s *State) float64 { return float64(len(s.Invalid)) }},
		{"objects", "Kernel objects in the desired state.", g, func(s *State) float64 { return float64(s.Counts.Objects) }},
		{"reconcile_seconds", "Duration of the last reconciliation.", g, func(s *State) float64 { return s.Counts.LastTook.Seconds() }},
		{"reconciles_total", "Reconciliations.", c, func(s *State) float64 { return float64(s.Counts.Reconciles) }},
		{"resyncs_total", "Full resyncs: reconciliations that listed the kernel's objects.", c, func(s *State) float64 { return float64(s.Counts.Listed) }},
		{"objects_created_total", "Objects created or changed.", c, func(s *State) float64 { return float64(s.Counts.Created) }},
		{"objects_removed_total", "Objects removed.", c, func(s *State) float64 { return float64(s.Counts.Removed) }},
		{"failures_total", "Reconciliations that ended with at least one object not applied.", c, func(s *State) float64 { return float64(s.Counts.Failed) }},
	}
}

// Metrics returns the descriptions of the agent's metrics.
func Metrics() (out []*prometheus.Desc) {
	for _, m := range metrics() {
		out = append(out, m.desc())
	}
	return out
}

func (m metric) desc() *prometheus.Desc {
	return prometheus.NewDesc("fairlead_agent_"+m.name, m.help, nil, nil)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range Metrics() {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.a.State()
	for _, m := range metrics() {
		ch <- prometheus.MustNewConstMetric(m.desc(), m.kind, m.value(s))
	}
}
