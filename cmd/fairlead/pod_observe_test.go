package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/podnet"
)

// TestTracesReachACollector cannot be parallel: the exporter reads OpenTelemetry's variables itself.
func TestTracesReachACollector(t *testing.T) {
	var got collector.ExportTraceServiceRequest
	var path, key string
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(raw, &got)
		}
		if err != nil {
			t.Error(err)
		}
		path, key = r.URL.Path, r.Header.Get("X-Key")
		w.WriteHeader(status)
	}))
	defer s.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL+"/")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")
	e, err := newApp().exporter(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	spans := tracetest.SpanStubs{{Name: "pod setup", SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 2}, TraceFlags: trace.FlagsSampled})}}.Snapshots()
	if err := e.ExportSpans(t.Context(), spans); err != nil {
		t.Fatal(err)
	}
	if name := got.ResourceSpans[0].ScopeSpans[0].Spans[0].Name; name != "pod setup" || path != "/v1/traces" || key != "a b" {
		t.Errorf("got span %q at %s with the header %q", name, path, key)
	}
	status = http.StatusNotFound
	begin := time.Now()
	if err := e.ExportSpans(t.Context(), spans); err == nil || !strings.Contains(err.Error(), "404") || time.Since(begin) > sendTime {
		t.Errorf("a wrong path: %v after %v", err, time.Since(begin))
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", s.URL+"/own")
	status = http.StatusOK
	if e, err = newApp().exporter(t.Context(), ""); err == nil {
		err = e.ExportSpans(t.Context(), spans)
	}
	if err != nil || path != "/own" {
		t.Errorf("the endpoint for traces: %v at %s", err, path)
	}
}

// TestWatchedNode verifies that "pod watch", which asks no plugin, does not say whether the node is ready.
func TestWatchedNode(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	a := &app{stdout: &out, format: formatJSON}
	must(t, a.printNodeLine(podnet.NodeStatus{}))
	if strings.Contains(out.String(), "ready") {
		t.Error(out.String())
	}
}
