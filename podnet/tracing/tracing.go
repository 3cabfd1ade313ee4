// Package tracing creates OpenTelemetry spans for the work of a podnet.Manager: one per pod, network and plugin.
// Plugins that run as processes get the span's context as TRACEPARENT, TRACESTATE and BAGGAGE. It uses only
// OpenTelemetry's API, so the program chooses the exporter.
package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/podnet"
)

// Name is the name of the instrumentation scope.
const Name = "github.com/fairlead/fairlead/podnet"

// Observer is a podnet.Observer for podnet.Options.Observers.
type Observer struct{ tracer trace.Tracer }

var _ podnet.Observer = (*Observer)(nil)

// New returns an Observer that creates its spans with a provider.
func New(p trace.TracerProvider) *Observer {
	return &Observer{p.Tracer(Name, trace.WithInstrumentationVersion(cni.Release()))}
}

// Begin implements podnet.Observer.
func (o *Observer) Begin(ctx context.Context, s podnet.Step) (context.Context, func(error)) {
	ctx, span := o.tracer.Start(ctx, name(s), trace.WithAttributes(attributes(s)...))
	carrier := propagation.MapCarrier{}
	propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}).Inject(ctx, carrier)
	ctx = invoke.WithTrace(ctx, invoke.Trace{Parent: carrier["traceparent"], State: carrier["tracestate"], Baggage: carrier["baggage"]})
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
			if e, ok := errors.AsType[*cni.Error](err); ok {
				span.SetAttributes(attribute.Int("cni.error.code", int(e.Code)))
			}
		}
		span.End()
	}
}

// name returns the span's name: the operation without its object, so that there are few names.
func name(s podnet.Step) string {
	switch {
	case s.Plugin != "":
		return s.Operation + " plugin " + s.Plugin
	case s.Network != "":
		return s.Operation + " network"
	}
	return "pod " + s.Operation
}

func attributes(s podnet.Step) (out []attribute.KeyValue) {
	for _, kv := range [][2]string{
		{"container.id", s.PodID}, {"k8s.namespace.name", s.PodNamespace}, {"k8s.pod.name", s.PodName},
		{"cni.network", s.Network}, {"cni.ifname", s.IfName}, {"cni.plugin", s.Plugin},
	} {
		if kv[1] != "" {
			out = append(out, attribute.String(kv[0], kv[1]))
		}
	}
	return out
}
