package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent"
	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/podnet/metrics"
)

// TestReference compares the generated reference pages with the code; UPDATE=1 writes them.
func TestReference(t *testing.T) {
	t.Parallel()
	comparePage(t, "../../docs/agent-yaml.md", agentPage(t))
	comparePage(t, "../../docs/metrics.md", metricsPage(t))
}

const agentHeader = `# agent.yaml

This page is generated from the code. ` + "`UPDATE=1 go test ./cmd/fairlead -run TestReference`" + ` writes it.

%s

`

func agentPage(t *testing.T) string {
	var b strings.Builder
	example := config.Setting{Key: "store.etcd.endpoints"}
	fmt.Fprintf(&b, agentHeader, wrapped("", fmt.Sprintf("The [agent](agent.md) reads `%s`. Each key in the table is also a flag of `fairlead agent` "+
		"and an environment variable: the key `%s` is `--%s` and `%s`. A flag overrides the variable, and the variable overrides the file.",
		config.DefaultPath, example.Key, example.Flag(), example.Variable())))
	b.WriteString("| key | flag | meaning |\n|---|---|---|\n")
	for _, s := range config.Settings() {
		fmt.Fprintf(&b, "| `%s` | `--%s` | %s |\n", s.Key, s.Flag(), s.About)
	}
	file, err := os.ReadFile("../../contrib/agent/agent.yaml")
	must(t, err)
	fmt.Fprintf(&b, `
The key %s exists in the file only. In a flag or variable, %s is JSON.

## The annotated file

Every key, with its meaning and its default. A test loads this file into the agent and compares the result with the
defaults.

%syaml
%s%s
`, "`cni`", "`network`", "```", file, "```")
	return b.String()
}

const metricsHeader = `# Metrics

This page is generated from the code. ` + "`UPDATE=1 go test ./cmd/fairlead -run TestReference`" + ` writes it.

Names that end in ` + "`_total`" + ` are counters, and names that end in ` + "`_duration_seconds`" + ` are histograms. Others are gauges.
`

// metricsPage describes the metrics of the agent and of pods.
func metricsPage(t *testing.T) string {
	var b strings.Builder
	b.WriteString(metricsHeader)
	b.WriteString("\n## Agent\n\nThe [agent](agent.md#metrics) serves them at `/metrics` of the address `listen`.\n\n")
	metricTable(t, &b, agent.Metrics())
	b.WriteString("\n## Network policy\n\nThe agent serves them at the same address if [policy](policy.md#metrics) is enabled.\n\n")
	metricTable(t, &b, described(enforce.New(enforce.Options{})))
	b.WriteString("\n## Pods\n\n`fairlead pod --metrics-file` writes them, and [runtimes](pods.md#metrics) that use `podnet` serve them.\n\n")
	metricTable(t, &b, append(described(metrics.New()), described(metrics.NewNode(nil))...))
	return b.String()
}

func described(c prometheus.Collector) (out []*prometheus.Desc) {
	ch := make(chan *prometheus.Desc, 100)
	c.Describe(ch)
	close(ch)
	for d := range ch {
		out = append(out, d)
	}
	return out
}

func metricTable(t *testing.T, b *strings.Builder, list []*prometheus.Desc) {
	t.Helper()
	b.WriteString("| metric | labels | meaning |\n|---|---|---|\n")
	parts := regexp.MustCompile(`^Desc\{fqName: "(.*)", help: "(.*)", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	for _, d := range list {
		m := parts.FindStringSubmatch(d.String())
		if m == nil || m[1] == "" || m[2] == "" {
			t.Fatalf("a metric without a name or a help text: %s", d)
		}
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })
		for i := range labels {
			labels[i] = "`" + labels[i] + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", m[1], strings.Join(labels, ", "), m[2])
	}
}
