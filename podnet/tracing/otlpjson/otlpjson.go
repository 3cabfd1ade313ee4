// Package otlpjson exports OpenTelemetry spans as OTLP JSON, to a file for a collector's otlpjsonfile receiver, or over
// HTTP to any collector. OpenTelemetry's own exporter would link gRPC and all of protobuf.
//
// Source: OTLP 1.9.0, "JSON Protobuf Encoding" and "OTLP/HTTP Request".
package otlpjson

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Exporter is a span exporter for OpenTelemetry's SDK.
type Exporter struct {
	send func(ctx context.Context, request []byte) error
}

var _ sdk.SpanExporter = (*Exporter)(nil)

// File returns an exporter that appends to a file, one line per request.
func File(path string) *Exporter {
	return &Exporter{func(_ context.Context, request []byte) error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("export spans: %w", err)
		}
		_, err = f.Write(append(request, '\n')) // a single write, because processes may share the file
		if err2 := f.Close(); err == nil {
			err = err2
		}
		if err != nil {
			return fmt.Errorf("export spans to %s: %w", path, err)
		}
		return nil
	}}
}

// sendTime limits one HTTP request, so that a slow collector does not delay pods for long.
const sendTime = 5 * time.Second

// HTTP returns an exporter that posts to a URL, such as http://127.0.0.1:4318/v1/traces, with additional headers.
func HTTP(url string, headers map[string]string) *Exporter {
	client := &http.Client{Timeout: sendTime}
	return &Exporter{func(ctx context.Context, request []byte) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
		if err != nil {
			return fmt.Errorf("export spans: %w", err)
		}
		req.Header.Set("Content-Type", "application/json")
		for key, value := range headers {
			req.Header.Set(key, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("export spans: %w", err)
		}
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			said, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // for the error message
			return fmt.Errorf("export spans to %s: %s: %s", url, resp.Status, said)
		}
		return nil
	}}
}

// ExportSpans implements trace.SpanExporter.
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	raw, err := json.Marshal(encode(spans))
	if err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	return e.send(ctx, raw)
}

// Shutdown implements trace.SpanExporter. It does nothing, because nothing is buffered.
func (e *Exporter) Shutdown(context.Context) error { return nil }

type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	span struct {
		TraceID      string     `json:"traceId"`
		SpanID       string     `json:"spanId"`
		ParentSpanID string     `json:"parentSpanId,omitempty"`
		TraceState   string     `json:"traceState,omitempty"`
		Name         string     `json:"name"`
		Kind         int        `json:"kind"`
		Start        string     `json:"startTimeUnixNano"` // protobuf's JSON has 64-bit numbers as strings
		End          string     `json:"endTimeUnixNano"`
		Attributes   []keyValue `json:"attributes,omitempty"`
		Status       status     `json:"status"`
	}
	status struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	keyValue struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string  `json:"stringValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
	}
)

// encode returns a request. All spans of a process have one resource.
func encode(spans []sdk.ReadOnlySpan) request {
	byScope := map[scope]int{}
	rs := resourceSpans{Resource: resource{pairs(spans[0].Resource().Attributes())}}
	for _, s := range spans {
		in := scope{s.InstrumentationScope().Name, s.InstrumentationScope().Version}
		i, ok := byScope[in]
		if !ok {
			i = len(rs.ScopeSpans)
			byScope[in] = i
			rs.ScopeSpans = append(rs.ScopeSpans, scopeSpans{Scope: in})
		}
		rs.ScopeSpans[i].Spans = append(rs.ScopeSpans[i].Spans, encodeSpan(s))
	}
	return request{[]resourceSpans{rs}}
}

func encodeSpan(s sdk.ReadOnlySpan) span {
	out := span{
		TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(), TraceState: s.SpanContext().TraceState().String(),
		Name: s.Name(), Kind: int(s.SpanKind()), Start: nanoseconds(s.StartTime()), End: nanoseconds(s.EndTime()), Attributes: pairs(s.Attributes()),
	}
	if s.Parent().HasSpanID() {
		out.ParentSpanID = s.Parent().SpanID().String()
	}
	switch s.Status().Code { // OTLP numbers the codes differently
	case codes.Ok:
		out.Status.Code = 1
	case codes.Error:
		out.Status = status{2, s.Status().Description}
	}
	return out
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func pairs(list []attribute.KeyValue) (out []keyValue) {
	for _, kv := range list {
		out = append(out, keyValue{string(kv.Key), encodeValue(kv.Value)})
	}
	return out
}

func encodeValue(v attribute.Value) value {
	switch v.Type() {
	case attribute.BOOL:
		b := v.AsBool()
		return value{Bool: &b}
	case attribute.INT64:
		n := strconv.FormatInt(v.AsInt64(), 10)
		return value{Int: &n}
	case attribute.FLOAT64:
		f := v.AsFloat64()
		return value{Double: &f}
	}
	s := v.String() // also formats lists as text
	return value{String: &s}
}
