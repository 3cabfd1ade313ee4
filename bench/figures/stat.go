// Package figures evaluates the benchmark's samples: medians, ratios with their spread, tables, targets, and charts.
package figures

import (
	"math"
	"slices"
)

// Sample is one round of one side.
type Sample struct {
	Time float64 // ms
	CPU  float64 // ms, of all processes

	Silent bool // no answer came; Time is how long the side waited
}

// Stat is the cost of one side, in milliseconds.
type Stat struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	MinCPU float64 `json:"minCPU"`
	CPU    float64 `json:"cpu"`            // median, of the runtime's process and all plugins
	Peak   int     `json:"peak,omitempty"` // KiB of the process tree, see bench/peak; 0: not measured
	Rounds int     `json:"rounds"`
	Silent int     `json:"silent,omitempty"` // rounds without an answer, see Sample
}

// Ratio compares pairs of rounds that ran one after the other. From 20 pairs on, Low and High are the 95% confidence
// interval of the median. P10 and P90 are percentiles of the pairs.
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
}

// quantile returns a quantile by nearest rank, or 0 without values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// Median returns the median, or 0 without values.
func Median(v []float64) float64 { return quantile(slices.Sorted(slices.Values(v)), 0.5) }

// Summary summarizes samples.
func Summary(samples []Sample) Stat {
	times, cpus := make([]float64, len(samples)), make([]float64, len(samples))
	for i, s := range samples {
		times[i], cpus[i] = s.Time, s.CPU
	}
	slices.Sort(times)
	slices.Sort(cpus)
	silent := 0
	for _, s := range samples {
		if s.Silent {
			silent++
		}
	}
	return Stat{
		Silent: silent,
		Median: quantile(times, 0.5), P10: quantile(times, 0.1), P90: quantile(times, 0.9), P99: quantile(times, 0.99),
		Min: quantile(times, 0), MinCPU: quantile(cpus, 0), CPU: quantile(cpus, 0.5), Rounds: len(samples),
	}
}

// Paired returns the ratio of a to b, round by round. It skips rounds that one side lacks, and rounds without a value.
func Paired(a, b []float64) Ratio {
	var v []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			v = append(v, a[i]/b[i])
		}
	}
	slices.Sort(v)
	r := Ratio{Median: quantile(v, 0.5), P10: quantile(v, 0.1), P90: quantile(v, 0.9)}
	r.Low, r.High = interval(v)
	return r
}

// interval returns the 95% confidence interval of the median by order statistics. The ranks are n/2 -+ 0.98 sqrt(n),
// from the normal approximation of the binomial distribution.
func interval(sorted []float64) (low, high float64) {
	n := len(sorted)
	if n == 0 {
		return 0, 0
	}
	half := 0.98 * math.Sqrt(float64(n))
	at := func(rank float64) float64 { return sorted[min(max(int(rank), 0), n-1)] }
	return at(math.Floor(float64(n)/2 - half)), at(math.Ceil(float64(n)/2 + half))
}

func timesOf(samples []Sample) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = s.Time
	}
	return out
}

func cpuOf(samples []Sample) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = s.CPU
	}
	return out
}
