package invoke

import "context"

// Trace is the context of a distributed trace, as the W3C's Trace Context and
// Baggage write it. It reaches plugins as TRACEPARENT, TRACESTATE and BAGGAGE.
type Trace struct {
	Parent  string
	State   string
	Baggage string
}

type traceKey struct{}

// WithTrace makes every plugin that is started under the context part of t.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceFrom returns the trace of a context, empty if it has none.
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
