package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/userfile"
	"github.com/fairlead/fairlead/podnet"
	"github.com/fairlead/fairlead/podnet/metrics"
	"github.com/fairlead/fairlead/podnet/tracing"
	"github.com/fairlead/fairlead/podnet/tracing/otlpfile"
)

// sendTime limits the export of a command's spans, so that a slow collector does not delay pods for long.
const sendTime = 5 * time.Second

// podObservers are the observers of one command.
type podObservers struct {
	ctx  context.Context // carries the caller's trace
	list []podnet.Observer
}

// observers returns the observers that the flags and the environment ask for. The function end writes what they collected.
func (a *app) observers(ctx context.Context, f *podFlags) (o *podObservers, end func(*podnet.Manager) error, err error) {
	o = &podObservers{ctx: ctx}
	var seen *metrics.Observer
	if f.metricsFile != "" {
		seen = metrics.New()
		o.list = append(o.list, seen)
	}
	exporter, err := a.exporter(ctx, f.traceFile)
	if err != nil {
		return nil, nil, err
	}
	var provider *sdk.TracerProvider
	if exporter != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			fmt.Fprintln(a.stderr, "fairlead: warning: the trace is lost:", strings.TrimPrefix(err.Error(), "traces export: "))
		}))
		provider = sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "fairlead"), attribute.String("service.version", cni.Release()))))
		o.list = append(o.list, tracing.New(provider))
		o.ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": a.getenv("TRACEPARENT"), "tracestate": a.getenv("TRACESTATE")})
	}
	return o, func(m *podnet.Manager) error {
		if provider != nil {
			if err := provider.Shutdown(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		return writeMetrics(f.metricsFile, seen, m)
	}, nil
}

// writeMetrics replaces the file atomically, or writes to a device or a pipe.
func writeMetrics(file string, seen *metrics.Observer, m *podnet.Manager) error {
	if file == "" {
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewNode(m))
	if seen != nil {
		registry.MustRegister(seen)
	}
	families, err := registry.Gather()
	var text bytes.Buffer
	for _, family := range families {
		_, err2 := expfmt.MetricFamilyToText(&text, family)
		err = errors.Join(err, err2)
	}
	if err == nil {
		err = userfile.Replace(file, text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// exporter returns the destination of spans: the file, or the endpoint in OpenTelemetry's variables, or nil.
func (a *app) exporter(ctx context.Context, file string) (sdk.SpanExporter, error) {
	if file != "" {
		return otlpfile.New(file), nil
	}
	to := a.getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := a.getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); to == "" && base != "" {
		to = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if to == "" {
		return nil, nil
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &usageError{fmt.Sprintf("OTEL_EXPORTER_OTLP_ENDPOINT: %q: want a URL like http://127.0.0.1:4318", to), "Type: fairlead help environment"}
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to), otlptracehttp.WithTimeout(sendTime),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
}
