package otlpfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead/fairlead/podnet/tracing/otlpfile"
)

// spans returns a failed span and its parent. Attributes have the names of OTLP's own fields.
func spans() []sdk.ReadOnlySpan {
	at := time.Unix(1700000000, 5)
	id := func(n byte) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: n}, TraceFlags: trace.FlagsSampled})
	}
	res := resource.NewSchemaless(attribute.String("service.name", "fairlead"))
	scope := instrumentation.Scope{Name: "podnet", Version: "1"}
	return tracetest.SpanStubs{
		{Name: "child", SpanContext: id(2), Parent: id(1), SpanKind: trace.SpanKindInternal, StartTime: at, EndTime: at.Add(time.Millisecond), Resource: res, InstrumentationScope: scope,
			Status:     sdk.Status{Code: codes.Error, Description: "no luck"},
			Attributes: []attribute.KeyValue{attribute.String("traceId", "x"), attribute.Int("i", 7), attribute.Bool("b", true), attribute.StringSlice("l", []string{"a", "b"})}},
		{Name: "parent", SpanContext: id(1), SpanKind: trace.SpanKindInternal, StartTime: at, EndTime: at.Add(time.Second), Resource: res, InstrumentationScope: scope},
	}.Snapshots()
}

// want follows the OTLP JSON encoding: hexadecimal IDs, 64-bit numbers as strings, enumerations as numbers.
const want = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"fairlead"}}]},"scopeSpans":[{"scope":{"name":"podnet","version":"1"},"spans":[` +
	`{"attributes":[{"key":"traceId","value":{"stringValue":"x"}},{"key":"i","value":{"intValue":"7"}},{"key":"b","value":{"boolValue":true}},{"key":"l","value":{"arrayValue":{"values":[{"stringValue":"a"},{"stringValue":"b"}]}}}],` +
	`"endTimeUnixNano":"1700000000001000005","flags":257,"kind":1,"name":"child","parentSpanId":"0000000000000001","spanId":"0000000000000002","startTimeUnixNano":"1700000000000000005","status":{"code":2,"message":"no luck"},"traceId":"00000000000000000000000000000001"},` +
	`{"endTimeUnixNano":"1700000001000000005","flags":257,"kind":1,"name":"parent","spanId":"0000000000000001","startTimeUnixNano":"1700000000000000005","status":{},"traceId":"00000000000000000000000000000001"}]}]}]}`

func TestExportAppendsALinePerRequest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "traces.json")
	e := otlpfile.New(file)
	for range 2 {
		if err := e.ExportSpans(t.Context(), spans()); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.ExportSpans(t.Context(), nil); err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want+"\n"+want+"\n" {
		t.Errorf("got %s, %v, want twice\n%s", got, err, want)
	}
}

func TestExportReportsAnUnusablePath(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := otlpfile.New(filepath.Join(file, "x")).ExportSpans(t.Context(), spans())
	if err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file below a file: %v", err)
	}
}
