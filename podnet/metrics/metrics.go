// Package metrics counts and times the work of a podnet.Manager for Prometheus.
// docs/pods.md lists the metrics.
package metrics

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/podnet"
)

// Observer counts and times every step. It is a podnet.Observer for
// podnet.Options.Observers, and a prometheus.Collector to be registered.
type Observer struct {
	operations *prometheus.HistogramVec
	networks   *prometheus.HistogramVec
	plugins    *prometheus.HistogramVec
	errors     *prometheus.CounterVec
	atWork     *prometheus.GaugeVec
}

var (
	_ podnet.Observer      = (*Observer)(nil)
	_ prometheus.Collector = (*Observer)(nil)
)

// New returns an Observer without samples.
func New() *Observer {
	times := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "fairlead", Subsystem: "pod", Name: name, Help: help, Buckets: buckets()}, labels)
	}
	return &Observer{
		operations: times("operation_duration_seconds", "Duration of a whole operation (setup, teardown, check, attach, detach, gc, status), including the wait for another operation on the pod; outcome is ok or error.", "operation", "outcome"),
		networks:   times("network_duration_seconds", "Duration of a command (ADD, DEL, CHECK, GC, STATUS) for one network.", "command", "network", "outcome"),
		plugins:    times("plugin_duration_seconds", "Duration of one plugin's run. If plugins share a process, work at the end of the list counts for the last one.", "command", "plugin", "outcome"),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "fairlead", Subsystem: "pod", Name: "plugin_errors_total",
			Help: "Failures by CNI error code; 0: no code."}, []string{"command", "plugin", "code"}),
		atWork: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "fairlead", Subsystem: "pod", Name: "operations_in_progress",
			Help: "Operations in progress, including those that wait for another operation on their pod."}, []string{"operation"}),
	}
}

// buckets returns bounds in seconds, from the time of one plugin to the timeouts of runtimes.
func buckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
}

// Begin implements podnet.Observer.
func (o *Observer) Begin(ctx context.Context, s podnet.Step) (context.Context, func(error)) {
	began := time.Now()
	whole := s.Plugin == "" && s.Network == ""
	if whole {
		o.atWork.WithLabelValues(s.Operation).Inc()
	}
	return ctx, func(err error) {
		seconds := time.Since(began).Seconds()
		switch {
		case whole:
			o.atWork.WithLabelValues(s.Operation).Dec()
			o.operations.WithLabelValues(s.Operation, outcome(err)).Observe(seconds)
		case s.Plugin == "":
			o.networks.WithLabelValues(s.Operation, s.Network, outcome(err)).Observe(seconds)
		default:
			o.plugins.WithLabelValues(s.Operation, s.Plugin, outcome(err)).Observe(seconds)
			if err != nil {
				o.errors.WithLabelValues(s.Operation, s.Plugin, code(err)).Inc()
			}
		}
	}
}

func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

func code(err error) string {
	e, ok := errors.AsType[*cni.Error](err)
	if !ok {
		return "0"
	}
	return strconv.FormatUint(uint64(e.Code), 10)
}

// Describe implements prometheus.Collector.
func (o *Observer) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range o.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(ch chan<- prometheus.Metric) {
	for _, c := range o.all() {
		c.Collect(ch)
	}
}

func (o *Observer) all() []prometheus.Collector {
	return []prometheus.Collector{o.operations, o.networks, o.plugins, o.errors, o.atWork}
}
