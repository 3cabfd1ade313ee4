package tracing_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fairlead/fairlead/podnet"
	"github.com/fairlead/fairlead/podnet/tracing"
)

// TestSpans checks that a pod's set-up is one trace, that plugins get its context, and that the failed span has the
// error.
func TestSpans(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	for name, text := range map[string]string{
		"plug":       "#!/bin/sh\ncat >/dev/null\necho $CNI_COMMAND $TRACEPARENT >>" + seen + "\n[ $CNI_COMMAND$CNI_IFNAME = ADDbad ] && { echo '{\"code\":11,\"msg\":\"later\"}'; exit 1; }\necho '{\"cniVersion\":\"1.1.0\"}'\n",
		"1.conflist": `{"cniVersion": "1.1.0", "name": "one", "plugins": [{"type": "plug"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spans := tracetest.NewSpanRecorder()
	m, err := podnet.New(podnet.Options{ConfDirs: []string{dir}, PluginDirs: []string{dir}, StateDir: filepath.Join(dir, "pods"), CacheDir: filepath.Join(dir, "cache"),
		RunDir: filepath.Join(dir, "run"), NoLoopback: true, Observers: []podnet.Observer{tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetUpPod(t.Context(), podnet.Pod{ID: "a", Namespace: "shop", Name: "web", Netns: "/proc/self/ns/net", Networks: []podnet.Network{{IfName: "bad"}}}); err == nil {
		t.Fatal("set up with a plugin that fails")
	}
	var tree []string
	names := map[string]string{}
	for _, s := range spans.Started() {
		parent := names[s.Parent().SpanID().String()]
		names[s.SpanContext().SpanID().String()] = s.Name()
		tree = append(tree, parent+" > "+s.Name())
		if s.SpanContext().TraceID() != spans.Started()[0].SpanContext().TraceID() {
			t.Errorf("%s is of another trace", s.Name())
		}
	}
	want := " > pod setup\npod setup > ADD network\nADD network > ADD plugin plug\npod setup > DEL network\nDEL network > DEL plugin plug"
	if got := strings.Join(tree, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if n := len(spans.Ended()); n != 5 {
		t.Errorf("%d spans ended", n)
	}
	for _, s := range spans.Ended() {
		failed := s.Name() == "pod setup" || strings.HasPrefix(s.Name(), "ADD")
		if failed != (s.Status().Code == codes.Error) {
			t.Errorf("%s: %v", s.Name(), s.Status())
		}
		attrs := map[string]string{}
		for _, a := range s.Attributes() {
			attrs[string(a.Key)] = a.Value.String()
		}
		if attrs["container.id"] != "a" || attrs["k8s.pod.name"] != "web" || failed != (attrs["cni.error.code"] == "11") {
			t.Errorf("%s: %v", s.Name(), attrs)
		}
		if s.Name() != "ADD plugin plug" {
			continue
		}
		raw, err := os.ReadFile(seen)
		if want := "ADD 00-" + s.SpanContext().TraceID().String() + "-" + s.SpanContext().SpanID().String() + "-01\n"; err != nil || !strings.HasPrefix(string(raw), want) {
			t.Errorf("the plugin was told %s, want %s", raw, want)
		}
	}
}
