package nftable_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// large returns a table with sets of addresses, and a chain for each set.
func large(sets, elements int) *nftable.Table {
	t := nftable.New("inet", "fairlead-large")
	verdicts := &nftable.Set{Type: "ipv4_addr : verdict", Elements: map[string]string{}}
	t.Sets["egress4"] = verdicts
	t.Chains["forward"] = &nftable.Chain{Hook: forward, Rules: []nftable.Rule{{Text: "ct state established,related accept"}, {Text: "ip saddr vmap @egress4"}}}
	for i := range sets {
		s := &nftable.Set{Type: "ipv4_addr", Elements: map[string]string{}}
		for j := range elements {
			s.Elements[fmt.Sprintf("10.%d.%d.%d", i/250, i%250, j)] = ""
		}
		name := fmt.Sprintf("pods%d", i)
		t.Sets[name] = s
		t.Chains[name] = &nftable.Chain{Rules: []nftable.Rule{
			{Text: "ip daddr @" + name + " th dport 80 accept", Comment: "one"}, {Text: "ip daddr @" + name + " counter"}, {Text: "drop"}}}
		if i < 1000 {
			verdicts.Elements[fmt.Sprintf("10.200.%d.%d", i/250, i%250)] = "goto " + name
		}
	}
	return t
}

// median reports the median time of f, which prepare precedes.
func median(b *testing.B, prepare, f func(i int)) {
	b.Helper()
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		prepare(i)
		start := time.Now()
		f(i)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(0, "ns/op")
}

func nothing(int) {}

// BenchmarkElement adds one element to a set, and deletes it again, in a table with 2,000 sets.
func BenchmarkElement(b *testing.B) {
	kerneltest.Host(b)
	t, p := large(2000, 5), open(b)
	sync(b, p, t)
	changes := nftable.Changes{Keys: map[string]map[string]bool{"pods77": {"10.99.0.1": true}}}
	median(b, nothing, func(i int) {
		if delete(t.Sets["pods77"].Elements, "10.99.0.1"); i%2 == 0 {
			t.Sets["pods77"].Elements["10.99.0.1"] = ""
		}
		mustApply(b, p, t, changes)
	})
}

// BenchmarkVerdict adds one element to the map to verdicts, which has 1,000, and deletes it again.
func BenchmarkVerdict(b *testing.B) {
	kerneltest.Host(b)
	t, p := large(2000, 5), open(b)
	sync(b, p, t)
	changes := nftable.Changes{Keys: map[string]map[string]bool{"egress4": {"10.99.0.1": true}}}
	median(b, nothing, func(i int) {
		if delete(t.Sets["egress4"].Elements, "10.99.0.1"); i%2 == 0 {
			t.Sets["egress4"].Elements["10.99.0.1"] = "goto pods77"
		}
		mustApply(b, p, t, changes)
	})
}

// BenchmarkChain fills one chain again in a table with 2,000 chains.
func BenchmarkChain(b *testing.B) {
	kerneltest.Host(b)
	t, p := large(2000, 5), open(b)
	sync(b, p, t)
	changes := nftable.Changes{Chains: map[string]bool{"pods77": true}}
	median(b, nothing, func(i int) {
		t.Chains["pods77"].Rules[2].Comment = fmt.Sprint(i)
		mustApply(b, p, t, changes)
	})
}

func mustApply(b *testing.B, p *nftable.Programmer, t *nftable.Table, c nftable.Changes) {
	b.Helper()
	if found, err := p.Apply(b.Context(), t, c); err != nil || found != nil {
		b.Fatalf("%v, found %q", err, found)
	}
}

// BenchmarkSync compares a table of 2,000 sets and chains with the kernel's, and finds nothing.
func BenchmarkSync(b *testing.B) {
	kerneltest.Host(b)
	t, p := large(2000, 5), open(b)
	sync(b, p, t)
	median(b, nothing, func(int) {
		if found := sync(b, p, t); found != nil {
			b.Fatalf("found %q", found)
		}
	})
}

// BenchmarkCounters reads the counters of a table with 2,000 chains of three rules.
func BenchmarkCounters(b *testing.B) {
	kerneltest.Host(b)
	t, p := large(2000, 5), open(b)
	for _, c := range t.Chains {
		for i := range c.Rules {
			c.Rules[i].Text = "counter " + c.Rules[i].Text
		}
	}
	sync(b, p, t)
	median(b, nothing, func(int) {
		if list, err := p.Counters(t.Family, t.Name, ""); err != nil || len(list) < 2000 {
			b.Fatalf("%d counters (%v)", len(list), err)
		}
	})
}

// BenchmarkStart writes whole tables, next to nft.
func BenchmarkStart(b *testing.B) {
	for _, c := range []struct {
		name           string
		sets, elements int
	}{{"10000 elements", 40, 250}, {"2000 chains", 2000, 5}} {
		t := large(c.sets, c.elements)
		b.Run(c.name, func(b *testing.B) {
			kerneltest.Host(b)
			p := open(b)
			median(b, func(int) { kerneltest.Run(b, "nft", "flush", "ruleset") }, func(int) { sync(b, p, t) })
		})
		b.Run(c.name+", nft", func(b *testing.B) {
			kerneltest.Host(b)
			file := scriptFile(b, script(t))
			median(b, func(int) { kerneltest.Run(b, "nft", "flush", "ruleset") }, func(int) { kerneltest.Run(b, "nft", "-f", file) })
		})
	}
}

// BenchmarkReload is what people do without a programmer: at each change, nft loads the whole table again.
func BenchmarkReload(b *testing.B) {
	kerneltest.Host(b)
	t := large(2000, 5)
	file := scriptFile(b, "table inet fairlead-large\ndelete table inet fairlead-large\n"+script(t))
	median(b, nothing, func(int) { kerneltest.Run(b, "nft", "-f", file) })
}
