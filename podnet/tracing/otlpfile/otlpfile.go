// Package otlpfile writes OpenTelemetry spans to a file as OTLP JSON, one line per request, for a collector's
// otlpjsonfile receiver.
//
// Source: OTLP 1.9.0, "JSON Protobuf Encoding".
package otlpfile

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// New returns an exporter that appends to a file. Several processes may share the file.
func New(path string) *otlptrace.Exporter { return otlptrace.NewUnstarted(client(path)) }

// client is the path of the file.
type client string

var _ otlptrace.Client = client("")

// Start implements otlptrace.Client.
func (client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client. Nothing is buffered.
func (client) Stop(context.Context) error { return nil }

// UploadTraces implements otlptrace.Client.
func (path client) UploadTraces(_ context.Context, list []*spans.ResourceSpans) error {
	line, err := encode(list)
	if err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	f, err := os.OpenFile(string(path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("export spans: %w", err)
	}
	_, err = f.Write(append(line, '\n')) // a single write, because processes may share the file
	if err2 := f.Close(); err == nil {
		err = err2
	}
	if err != nil {
		return fmt.Errorf("export spans to %s: %w", path, err)
	}
	return nil
}

// encode returns a request as OTLP JSON: protobuf's JSON with numbers for enumerations and hexadecimal IDs.
func encode(list []*spans.ResourceSpans) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&collector.ExportTraceServiceRequest{ResourceSpans: list})
	if err != nil {
		return nil, err
	}
	var request any
	if err := json.Unmarshal(raw, &request); err != nil {
		return nil, err
	}
	if err := hexIDs(request); err != nil {
		return nil, err
	}
	return json.Marshal(request)
}

// hexIDs replaces the base64 of trace and span IDs. Attributes cannot be mistaken for IDs: their keys are values in OTLP.
func hexIDs(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := hexIDs(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, e := range v {
			switch key {
			case "traceId", "spanId", "parentSpanId":
				id, err := base64.StdEncoding.DecodeString(e.(string))
				if err != nil {
					return err
				}
				v[key] = hex.EncodeToString(id)
			default:
				if err := hexIDs(e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
