package nflog_test

import (
	"net"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/kernel/nflog"
	"github.com/fairlead/fairlead/kernel/nftable"
)

// BenchmarkDrop drops packets that the host itself sends, after 100 copies of a rule. The difference from "nothing",
// divided by 100, is the cost of that rule for a packet.
func BenchmarkDrop(b *testing.B) {
	const log = `log prefix "ingress: no NetworkPolicy allows it: shop/db-only" group 7`
	for _, c := range []struct {
		name, rule string
		listen     bool
	}{
		{"nothing", "", false},
		{"counter", "counter", false},
		{"limit", "limit rate over 1000000000/second burst 20 packets drop", false},
		{"log without a listener", log, false},
		{"log with a listener", log, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			done := make(chan error)
			go func() { done <- drop(b, c.rule, c.listen) }() // its thread ends with the goroutine
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

func drop(b *testing.B, rule string, listen bool) error {
	kerneltest.Host(b)
	p, err := nftable.Open()
	if err != nil {
		return err
	}
	defer p.Close()
	table := nftable.New("inet", "t")
	ch := &nftable.Chain{Hook: "type filter hook output priority 0"}
	if rule != "" {
		ch.Rules = slices.Repeat([]nftable.Rule{{Text: rule}}, 100)
	}
	ch.Rules = append(ch.Rules, nftable.Rule{Text: "drop"})
	table.Chains["output"] = ch
	if _, err := p.Sync(b.Context(), table); err != nil {
		return err
	}
	if listen {
		l, err := nflog.Open(group)
		if err != nil {
			return err
		}
		go func() { _ = l.Run(b.Context(), func(*nflog.Packet, int) {}) }()
	}
	c, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		return err
	}
	defer c.Close()
	for b.Loop() {
		_, _ = c.Write(make([]byte, 64)) // the rule makes it fail
	}
	return nil
}
