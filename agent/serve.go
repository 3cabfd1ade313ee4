package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serve answers at an address until the context ends: /metrics, /healthz (the loop
// turns) and /readyz (containers can reach others; 503 and every reason if not).
func (a *Agent) serve(ctx context.Context, address string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{a})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.alive()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.status.NotReady()) })
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 64 << 10}
	context.AfterFunc(ctx, func() { s.Close() })
	go func() {
		if err := s.Serve(&limited{l, make(chan struct{}, mostAsking)}); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("metrics are not served any more", "error", err)
		}
	}()
	return nil
}

// mostAsking is how many may ask for metrics at once: anybody can who reaches the
// address, and open files are what the agent needs for its own work.
const mostAsking = 64

// limited is a listener of which only so many connections are open at once.
type limited struct {
	net.Listener
	room chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.room <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-l.room })}, nil
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// stuck is a time in which the loop turns surely.
const stuck = 2 * fullLook

// alive is an error if the loop stands.
func (a *Agent) alive() error {
	if since := a.status.sinceTurn(); since > stuck {
		return fmt.Errorf("the loop stands for %s", since.Round(time.Second))
	}
	return nil
}

// collector is the agent's metrics, gathered when they are asked for.
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
		{"ready", "1 if containers of this node can reach others'.", g, func(s *State) float64 { return yes(s.Ready) }},
		{"store_reachable", "1 if the store answers.", g, func(s *State) float64 { return yes(s.Store == "") }},
		{"nodes", "Nodes of the cluster.", g, func(s *State) float64 { return float64(s.Nodes) }},
		{"problems", "Other nodes that this one cannot be joined with.", g, func(s *State) float64 { return float64(len(s.Problems)) }},
		{"left", "Keys of the store that are not heeded.", g, func(s *State) float64 { return float64(len(s.Left)) }},
		{"objects", "Kernel objects that are wanted.", g, func(s *State) float64 { return float64(s.Counts.Objects) }},
		{"look_seconds", "What the last look took.", g, func(s *State) float64 { return s.Counts.LastTook.Seconds() }},
		{"looks_total", "Looks at what is wanted.", c, func(s *State) float64 { return float64(s.Counts.Looks) }},
		{"lists_total", "Looks that listed the kernel.", c, func(s *State) float64 { return float64(s.Counts.Listed) }},
		{"objects_made_total", "Objects that were made or changed.", c, func(s *State) float64 { return float64(s.Counts.Made) }},
		{"objects_removed_total", "Objects that were removed.", c, func(s *State) float64 { return float64(s.Counts.Removed) }},
		{"failures_total", "Looks after which not all was as wanted.", c, func(s *State) float64 { return float64(s.Counts.Failed) }},
	}
}

func (m metric) desc() *prometheus.Desc {
	return prometheus.NewDesc("fairlead_agent_"+m.name, m.help, nil, nil)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics() {
		ch <- m.desc()
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.a.State()
	for _, m := range metrics() {
		ch <- prometheus.MustNewConstMetric(m.desc(), m.kind, m.value(s))
	}
}
