package otlpjson_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
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

	"github.com/fairlead/fairlead/podnet/tracing/otlpjson"
)

// spans returns a failed span and its parent.
func spans() []sdk.ReadOnlySpan {
	at := time.Unix(1700000000, 5)
	id := func(n byte) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: n}, TraceFlags: trace.FlagsSampled})
	}
	res := resource.NewSchemaless(attribute.String("service.name", "fairlead"))
	in := instrumentation.Scope{Name: "podnet", Version: "1"}
	return tracetest.SpanStubs{
		{Name: "child", SpanContext: id(2), Parent: id(1), SpanKind: trace.SpanKindInternal, StartTime: at, EndTime: at.Add(time.Millisecond), Resource: res, InstrumentationScope: in,
			Status:     sdk.Status{Code: codes.Error, Description: "no luck"},
			Attributes: []attribute.KeyValue{attribute.String("s", "x"), attribute.Int("i", 7), attribute.Bool("b", true), attribute.Float64("f", .5), attribute.StringSlice("l", []string{"a", "b"})}},
		{Name: "parent", SpanContext: id(1), SpanKind: trace.SpanKindInternal, StartTime: at, EndTime: at.Add(time.Second), Resource: res, InstrumentationScope: in},
	}.Snapshots()
}

const want = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"fairlead"}}]},"scopeSpans":[{"scope":{"name":"podnet","version":"1"},"spans":[` +
	`{"traceId":"00000000000000000000000000000001","spanId":"0000000000000002","parentSpanId":"0000000000000001","name":"child","kind":1,"startTimeUnixNano":"1700000000000000005","endTimeUnixNano":"1700000000001000005",` +
	`"attributes":[{"key":"s","value":{"stringValue":"x"}},{"key":"i","value":{"intValue":"7"}},{"key":"b","value":{"boolValue":true}},{"key":"f","value":{"doubleValue":0.5}},{"key":"l","value":{"stringValue":"[\"a\",\"b\"]"}}],"status":{"code":2,"message":"no luck"}},` +
	`{"traceId":"00000000000000000000000000000001","spanId":"0000000000000001","name":"parent","kind":1,"startTimeUnixNano":"1700000000000000005","endTimeUnixNano":"1700000001000000005","status":{}}]}]}]}`

func TestFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "traces.json")
	e := otlpjson.File(file)
	for range 2 {
		if err := e.ExportSpans(t.Context(), spans()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want+"\n"+want+"\n" || !json.Valid([]byte(want)) {
		t.Errorf("got %s, %v, want twice\n%s", got, err, want)
	}
	if err := e.ExportSpans(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := otlpjson.File(filepath.Join(file, "x")).ExportSpans(t.Context(), spans()); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file below a file: %v", err)
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	var got, header string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, header = string(raw), r.Header.Get("Content-Type")+" "+r.Header.Get("X-Key")
		if r.URL.Path != "/v1/traces" {
			http.Error(w, "no such thing", http.StatusNotFound)
		}
	}))
	defer s.Close()
	if err := otlpjson.HTTP(s.URL+"/v1/traces", map[string]string{"X-Key": "k"}).ExportSpans(t.Context(), spans()); err != nil || got != want || header != "application/json k" {
		t.Errorf("posted %s with %s, %v", got, header, err)
	}
	if err := otlpjson.HTTP(s.URL+"/x", nil).ExportSpans(t.Context(), spans()); err == nil || !strings.Contains(err.Error(), "404 Not Found: no such thing") {
		t.Errorf("a refusal: %v", err)
	}
}
