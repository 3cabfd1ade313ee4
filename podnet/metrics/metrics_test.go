package metrics_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fairlead/fairlead/podnet"
	"github.com/fairlead/fairlead/podnet/metrics"
)

// node returns a Manager with two scripts as plugins: one does nothing and one fails.
func node(t *testing.T, o podnet.Observer) *podnet.Manager {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good": `echo '{"cniVersion":"1.1.0"}'`, "bad": `[ $CNI_COMMAND = ADD ] && { echo '{"code":11,"msg":"later"}'; exit 1; }; true`,
		"1.conflist": `{"cniVersion": "1.1.0", "name": "one", "plugins": [{"type": "good"}]}`,
		"2.conflist": `{"cniVersion": "1.1.0", "name": "two", "plugins": [{"type": "good"}, {"type": "bad"}]}`,
		"3.conflist": `{`,
	} {
		if !strings.Contains(name, ".") {
			text = "#!/bin/sh\ncat >/dev/null\n" + text + "\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m, err := podnet.New(podnet.Options{ConfDirs: []string{dir}, PluginDirs: []string{dir}, StateDir: filepath.Join(dir, "pods"), CacheDir: filepath.Join(dir, "cache"),
		RunDir: filepath.Join(dir, "run"), NoLoopback: true, Observers: []podnet.Observer{o}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	o := metrics.New()
	m := node(t, o)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o, metrics.NewNode(m))
	pod := podnet.Pod{ID: "a", Netns: "/proc/self/ns/net", Networks: []podnet.Network{{IfName: "pod0"}}}
	if _, err := m.SetUpPod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.ID, pod.Networks = "b", []podnet.Network{{Name: "two", IfName: "pod0"}}
	if _, err := m.SetUpPod(t.Context(), pod); err == nil {
		t.Fatal("set up with a plugin that fails")
	}
	counts(t, registry, map[string]uint64{
		`operation_duration_seconds operation=setup outcome=ok`:          1,
		`operation_duration_seconds operation=setup outcome=error`:       1,
		`network_duration_seconds command=ADD network=one outcome=ok`:    1,
		`network_duration_seconds command=ADD network=two outcome=error`: 1,
		`network_duration_seconds command=DEL network=two outcome=ok`:    1,
		`plugin_duration_seconds command=ADD outcome=ok plugin=good`:     2,
		`plugin_duration_seconds command=ADD outcome=error plugin=bad`:   1,
		`plugin_duration_seconds command=DEL outcome=ok plugin=bad`:      1,
		`plugin_duration_seconds command=DEL outcome=ok plugin=good`:     1,
	})
	want := `
# HELP fairlead_pod_configuration_problems Problems of the configuration; kept is true if the file's last valid version is in use.
# TYPE fairlead_pod_configuration_problems gauge
fairlead_pod_configuration_problems{kept="false"} 1
fairlead_pod_configuration_problems{kept="true"} 0
# HELP fairlead_pod_networks Usable networks.
# TYPE fairlead_pod_networks gauge
fairlead_pod_networks 2
# HELP fairlead_pod_operations_in_progress Operations in progress, including those that wait for another operation on their pod.
# TYPE fairlead_pod_operations_in_progress gauge
fairlead_pod_operations_in_progress{operation="setup"} 0
# HELP fairlead_pod_plugin_errors_total Failures by CNI error code; 0: no code.
# TYPE fairlead_pod_plugin_errors_total counter
fairlead_pod_plugin_errors_total{code="11",command="ADD",plugin="bad"} 1
# HELP fairlead_pod_pods Pods, by state.
# TYPE fairlead_pod_pods gauge
fairlead_pod_pods{state="busy"} 0
fairlead_pod_pods{state="interrupted"} 0
fairlead_pod_pods{state="namespace gone"} 0
fairlead_pod_pods{state="ready"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_pod_configuration_problems", "fairlead_pod_networks",
		"fairlead_pod_operations_in_progress", "fairlead_pod_plugin_errors_total", "fairlead_pod_pods"); err != nil {
		t.Error(err)
	}
}

// counts compares the histograms' counts.
func counts(t *testing.T, registry *prometheus.Registry, want map[string]uint64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetHistogram() == nil {
				continue
			}
			key := []string{strings.TrimPrefix(f.GetName(), "fairlead_pod_")}
			for _, l := range m.GetLabel() {
				key = append(key, l.GetName()+"="+l.GetValue())
			}
			got[strings.Join(key, " ")] = m.GetHistogram().GetSampleCount()
		}
	}
	for key, n := range want {
		if got[key] != n {
			t.Errorf("%s: %d, want %d", key, got[key], n)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			t.Errorf("unexpected metric: %s", key)
		}
	}
}

// TestNames checks that the metrics follow Prometheus's naming rules, and that docs/metrics.md lists all of them.
func TestNames(t *testing.T) {
	t.Parallel()
	o := metrics.New()
	_, end := o.Begin(t.Context(), podnet.Step{Operation: "setup"})
	end(nil)
	_, end = o.Begin(t.Context(), podnet.Step{Operation: "ADD", Network: "n"})
	end(nil)
	_, end = o.Begin(t.Context(), podnet.Step{Operation: "ADD", Network: "n", Plugin: "p"})
	end(errors.Join(errors.New("no code"), context.Canceled))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o, metrics.NewNode(node(t, o)))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
		if !strings.Contains(string(page), "`"+f.GetName()+"`") {
			t.Errorf("docs/metrics.md does not have %s", f.GetName())
		}
	}
	if !slices.Contains(names, "fairlead_pod_plugin_errors_total") || len(names) != 8 {
		t.Errorf("metrics: %q", names)
	}
}
