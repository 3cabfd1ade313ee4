package invoke

import "context"

// Trace is the context of a distributed trace in the format of W3C Trace Context and Baggage. Plugins get it as
// TRACEPARENT, TRACESTATE and BAGGAGE.
type Trace struct {
	Parent  string
	State   string
	Baggage string
}

type traceKey struct{}

// WithTrace returns a context whose plugins get the trace t.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceFrom returns the trace of a context, or an empty one.
func TraceFrom(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}

func (t Trace) env() []string {
	var env []string
	for _, kv := range [][2]string{{"TRACEPARENT", t.Parent}, {"TRACESTATE", t.State}, {"BAGGAGE", t.Baggage}} {
		if kv[1] != "" {
			env = append(env, kv[0]+"="+kv[1])
		}
	}
	return env
}
