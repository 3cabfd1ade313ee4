package main

import (
	"fmt"

	f "github.com/fairlead/fairlead/bench/figures"
)

// targets returns the project's performance targets.
func targets() []f.Target {
	atLeast := func(text string, limit float64, value func(f.Report) *float64) f.Target {
		return f.Target{Text: text, Limit: limit, Value: value}
	}
	atMost := func(text string, limit float64, value func(f.Report) *float64) f.Target {
		return f.Target{Text: text, Limit: limit, Most: true, Value: value}
	}
	drain := fmt.Sprintf("%d pods: %s", nodePods, chainName)
	return []f.Target{
		atLeast("bridge + host-local, ADD as a process under the reference runtime: times as fast", 4, f.Faster(plainName, "ADD", ours)),
		atMost("the same: times the floor", 1.4, f.OverFloor(plainName, "ADD", ours)),
		atLeast("with masquerade, against the reference by nftables: times as fast", 9, f.Faster(masqNFTName, "ADD", ours)),
		atLeast("with masquerade, against the reference by iptables, its default: times as fast", 7, f.Faster(masqDefaultName, "ADD", ours)),
		atLeast("full chain, ADD, not fused: times as fast", 6, f.Faster(chainName, "ADD", ours)),
		atLeast("full chain, ADD, fused: times as fast", 15, f.Faster(chainName, "ADD", fused)),
		atLeast("full chain, ADD, through our runtime as a library: times as fast", 25, f.Faster(chainName, "ADD", library)),
		atLeast("full chain, DEL, fused: times as fast", 7, f.Faster(chainName, "DEL", fused)),
		atLeast("full chain, CHECK, fused: times as fast", 12, f.Faster(chainName, "CHECK", fused)),
		atLeast("16 at once, full chain fused: times as many attachments a second", 15, f.Faster(chainName+", 16 at once", "ADD", fused)),
		atMost("ADD with 5,000 containers present, compared with the first", 1.15, f.OverFirst(plainName+standing(5000), "ADD", ours)),
		atMost("the same, full chain", 1.15, f.OverFirst(chainName+standing(5000), "ADD", ours)),
		atLeast("host-local with 50,000 in use, ADD: times as fast", 150, f.Faster(heldBy(50000), "ADD", ours)),
		atMost("the same, compared with its own time with none in use", 1.1, f.OverFirst(heldBy(50000), "ADD", ours)),
		atMost("peak memory of an ADD's process tree, of the reference's: bridge + host-local", 0.5, f.Memory(plainName, "ADD", ours)),
		atMost("the same, full chain", 0.5, f.Memory(chainName, "ADD", ours)),
		atMost(fmt.Sprintf("drain of %d pods, full chain fused, against %d processes that do nothing", nodePods, nodePods), 2, f.OverNothing(drain, "DEL", fused)),
	}
}
