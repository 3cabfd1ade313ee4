package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/podnet"
)

// Node is a prometheus.Collector for a Manager's current configuration and pods. It runs no plugin.
type Node struct {
	manager                  *podnet.Manager
	networks, problems, pods *prometheus.Desc
}

// NewNode returns a collector for a Manager.
func NewNode(m *podnet.Manager) *Node {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_pod_"+name, help, labels, nil)
	}
	return &Node{m, desc("networks", "Usable networks."),
		desc("configuration_problems", "Problems of the configuration; kept is true if the file's last valid version is in use.", "kept"),
		desc("pods", "Pods, by state.", "state")}
}

// Describe implements prometheus.Collector.
func (n *Node) Describe(ch chan<- *prometheus.Desc) {
	ch <- n.networks
	ch <- n.problems
	ch <- n.pods
}

// Collect implements prometheus.Collector.
func (n *Node) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	s := n.manager.Networks()
	gauge(n.networks, len(s.Networks))
	kept := map[bool]int{}
	for _, p := range s.Problems {
		kept[p.Kept]++
	}
	gauge(n.problems, kept[true], "true")
	gauge(n.problems, kept[false], "false")
	states := map[string]int{podnet.StateReady: 0, podnet.StateGone: 0, podnet.StateBusy: 0, podnet.StateInterrupted: 0}
	pods, err := n.manager.List()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(n.pods, err)
		return
	}
	for _, p := range pods {
		states[p.State]++
	}
	for state, count := range states {
		gauge(n.pods, count, state)
	}
}
