package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/bench/figures"
)

// pathCase is one packet path and one measurement on it.
type pathCase struct {
	way   string
	from  string // namespace of the client
	addr  string
	port  int // iperf3 uses another port
	what  string
	ruled bool // nftables or iptables rules affect it
}

// cases returns all cases, or those of one measurement.
func cases(only string) (list []pathCase) {
	for _, what := range []string{"stream", "rr", "connect"} {
		if only != "" && only != what {
			continue
		}
		list = append(list,
			pathCase{way: "pod to pod", from: "a", addr: podB, port: echoPort, what: what},
			pathCase{way: "world to host port", from: "world", addr: hostAddr, port: echoHostPort, what: what, ruled: true},
			pathCase{way: "pod to world, masqueraded", from: "a", addr: outside, port: echoPort, what: what, ruled: true})
	}
	return list
}

func (c pathCase) unit() string {
	return map[string]string{"stream": "Gbit/s", "rr": "requests/s", "connect": "connections/s"}[c.what]
}

// measure returns one value of one contender.
func (c pathCase) measure(h host, length time.Duration) (float64, error) {
	if c.what != "stream" {
		self, err := os.Executable()
		if err != nil {
			return 0, err
		}
		argv := []string{self, "ask", c.what, fmt.Sprintf("%s:%d", c.addr, c.port), length.String()}
		if c.what == "rr" { // otherwise the scheduler's choice of processors would dominate
			argv[3] = fmt.Sprintf("%s:%d", c.addr, map[int]int{echoPort: pinnedPort, echoHostPort: pinnedHostPort}[c.port])
			argv = append([]string{"taskset", "-c", "0"}, argv...)
		}
		out, err := output(h.in(c.from, argv...))
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(out), 64)
	}
	out, err := output(h.in(c.from, "iperf3", "-J", "-c", c.addr, "-p", strconv.Itoa(iperfPort), "-t", fmt.Sprint(max(2, length.Seconds())), "-O", "1"))
	if err != nil {
		return 0, err
	}
	var result struct {
		End struct {
			Sum struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
		Error string `json:"error"`
	}
	if err = json.Unmarshal([]byte(out), &result); err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	if err != nil {
		return 0, fmt.Errorf("iperf3: %w", err)
	}
	return result.End.Sum.Bits / 1e9, nil
}

// row is a contender's figures in a case.
type row struct {
	Way, What, Unit, Who string
	Others               int       // number of other containers whose elements and rules exist
	Values               []float64 // in Unit, one per round
	Median               float64
	Ratio, Low, High     float64 // to the manual topology in the same round: median and its 95% confidence interval
}

// measure measures the contenders in turn, round after round. The first round is a warm-up.
func measure(hosts []host, c pathCase, o options, others int) ([]row, error) {
	fmt.Fprintf(os.Stderr, "%s, %s, %d others\n", c.way, c.unit(), others)
	rows := make([]row, len(hosts))
	for i, h := range hosts {
		rows[i] = row{Way: c.way, What: c.what, Unit: c.unit(), Who: h.name, Others: others}
	}
	for round := range o.rounds + 1 {
		for i, h := range hosts {
			v, err := c.measure(h, o.time)
			if err != nil {
				return nil, fmt.Errorf("%s, %s, %s: %w", h.name, c.way, c.what, err)
			}
			if round > 0 {
				rows[i].Values = append(rows[i].Values, v)
			}
		}
	}
	for i := range rows {
		rows[i].compare(rows[0].Values)
	}
	return rows, nil
}

func (r *row) compare(manual []float64) {
	ratios := make([]float64, len(manual))
	for i := range manual {
		ratios[i] = r.Values[i] / manual[i]
	}
	r.Median, r.Ratio = figures.Median(r.Values), figures.Median(ratios)
	r.Low, r.High = confidence(ratios)
}

// confidence returns the 95% bootstrap interval of a median: from the medians of 2,000 resamples, with a fixed seed.
func confidence(v []float64) (low, high float64) {
	if len(v) == 0 {
		return 0, 0
	}
	rng := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, 2000)
	sample := make([]float64, len(v))
	for i := range medians {
		for j := range sample {
			sample[j] = v[rng.IntN(len(v))]
		}
		medians[i] = figures.Median(sample)
	}
	slices.Sort(medians)
	return medians[len(medians)*25/1000], medians[len(medians)*975/1000]
}

// table formats rows as Markdown that is also readable as text.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| path | unit | other elements | setup | median | ratio to manual (95% interval) |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		of := "1"
		if r.Who != rows[0].Who {
			of = fmt.Sprintf("%.3f (%.3f-%.3f)", r.Ratio, r.Low, r.High)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s |\n", r.Way, r.Unit, r.Others, r.Who, number(r.Median), of)
	}
	return b.String()
}

// number formats a value with four significant digits, and without an exponent.
func number(v float64) string {
	if v >= 1000 {
		step := math.Pow10(int(math.Log10(v)) - 3)
		return strconv.FormatFloat(math.Round(v/step)*step, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

const page = `# Data path

` + "`make bench-path`" + ` wrote this page. It measures the overhead of links and rules: with Fairlead, with the
reference plugins (v1.10.0), and with the same topology configured manually with ` + "`ip`" + ` and three rules of ` + "`nft`" + `. The
contenders take turns, $ROUNDS rounds. Requests and connections run for $TIME each, one at a time, requests with
both ends on one processor. Streams use iperf3 for two seconds after one second of warm-up. A ratio compares values
of one round. Its interval is the bootstrap interval of the median; an interval that contains 1 shows no difference.
In the second half, 10,000 elements and rules of other containers are in place: copies of one container's, with its
address and host ports changed. The manual setup has none.

Machine: virtual, $CPUS processors, Linux $KERNEL, $GO. Measured on
$MOMENT. Both ends run on one machine, so a stream is bound by its processors.
Compare the ratios, not the absolute values.

$TABLE`
